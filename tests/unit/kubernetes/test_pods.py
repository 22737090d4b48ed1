"""The pods of a run against a cluster in memory: shared, replaced, and gone at the end whatever happened."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from gputax.errors import PreflightError
from gputax.kubernetes import pods as module
from gputax.kubernetes.objects import PodPlan
from gputax.kubernetes.pods import RunPods, as_yaml, new_run_id, uninterrupted
from gputax.kubernetes.watch import PodWatch

PLAN = PodPlan("", "", "gputax:1")


class MemoryCluster:
    """Pods become ready as soon as they are made, unless told otherwise."""

    def __init__(self, context: str = "", namespace: str = "") -> None:
        self.namespace, self.calls = namespace, 0
        self.pods: dict[str, dict[str, Any]] = {}
        self.finished: list[str] = []
        self.events: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue()
        self.on_create: BaseException | None = None
        self.watches = 0

    def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        live = {**manifest, "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        live["metadata"] = {**manifest["metadata"], "managedFields": ["noise"]}
        self.pods[manifest["metadata"]["name"]] = live
        self.events.put(("ADDED", live))
        if self.on_create:
            raise self.on_create
        return live

    def delete(self, kind: str, name: str, **_: Any) -> bool:
        gone = self.pods.pop(name, None)
        if gone:
            self.events.put(("DELETED", gone))
        self.finished = [each for each in self.finished if each != name]
        return gone is not None

    def list(self, kind: str, *, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        assert "gputax.dev/run" not in labels
        time.sleep(0.01)  # as an answer takes: others come in between
        return [{"metadata": {"name": name}, "status": {"phase": "Succeeded"}} for name in self.finished]

    def watch(self, kind: str, *, labels: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
        self.watches += 1
        while True:
            yield self.events.get()

    def log(self, pod: str) -> str:
        return f"log of {pod}"

    def kubectl(self, *words: str, namespaced: bool = True) -> str:
        return " ".join(["kubectl", *words])

    def close(self) -> None:
        pass


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> RunPods:
    monkeypatch.setattr(module, "Cluster", MemoryCluster)
    return RunPods("", "gputax", lambda text: None)


def memory(run: RunPods) -> MemoryCluster:
    assert isinstance(run.cluster, MemoryCluster)
    return run.cluster


def test_equal_plans_share_a_pod_and_all_are_gone_at_the_end(run: RunPods) -> None:
    one, same = run.ready(PLAN, 5), run.ready(PLAN, 5)
    other = run.ready(PodPlan("", "", "gputax:2"), 5)
    assert one is same
    assert len({one.name, other.name}) == len(memory(run).pods) == 2
    run.close()
    assert memory(run).pods == {}
    assert run.files()[f"kubernetes/{one.name}.log"] == f"log of {one.name}"
    assert "managedFields" not in run.files()[f"kubernetes/{one.name}.yaml"]


def test_a_pod_that_died_is_replaced(run: RunPods) -> None:
    first = run.ready(PLAN, 5)
    memory(run).delete("Pod", first.name)
    assert "deleted" in run.death_within(first.name, 5)
    assert run.ready(PLAN, 5).name != first.name
    run.close()


def test_an_interrupt_right_after_the_creation_leaves_nothing(run: RunPods) -> None:
    memory(run).on_create = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        run.ready(PLAN, 5)
    run.close()
    assert memory(run).pods == {}


def test_a_pod_that_never_gets_ready_is_removed_at_once(run: RunPods, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> None:
        raise PreflightError("the pod cannot be scheduled")

    monkeypatch.setattr("gputax.kubernetes.watch.PodWatch.wait_ready", never)
    with pytest.raises(PreflightError):
        run.ready(PLAN, 5)
    assert memory(run).pods == {}


def test_what_a_killed_run_left_is_removed_by_the_next(run: RunPods) -> None:
    memory(run).finished.append("gputax-worker-old-0")
    run.ready(PLAN, 5)
    assert memory(run).finished == []
    run.close()


def test_a_signal_while_cleaning_waits() -> None:
    with uninterrupted():
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_run_s_name_fits_into_names_and_labels() -> None:
    name = f"gputax-worker-{new_run_id()}-99"
    assert len(name) < 63
    assert name.replace("-", "").isalnum()
    assert name == name.lower()


def test_a_manifest_for_people_keeps_its_order() -> None:
    assert as_yaml({"kind": "Pod", "apiVersion": "v1", "metadata": {"managedFields": []}}).startswith("kind: Pod")


def test_a_pod_that_never_started_is_waited_for_as_well(run: RunPods, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[str] = []

    def never(self: object, name: str, *_: object) -> None:
        raise PreflightError("the pod cannot start: ErrImagePull")

    def gone(self: object, name: str, timeout_s: float) -> bool:
        waited.append(name)
        return True

    monkeypatch.setattr(PodWatch, "wait_ready", never)
    monkeypatch.setattr(PodWatch, "wait_gone", gone)
    with pytest.raises(PreflightError):
        run.ready(PLAN, 5)
    run.close()
    assert len(waited) == 1
    assert memory(run).pods == {}


def test_threads_with_different_plans_get_different_pods_and_one_watch(run: RunPods) -> None:
    """The two sides of a duet `k8s k8s:gvisor` start at once, and its control shares the first one's pod."""
    plans = [PLAN, replace(PLAN, runtime_class="gvisor"), PLAN]
    together, found = threading.Barrier(len(plans)), [""] * len(plans)

    def start(number: int) -> None:
        together.wait()
        found[number] = run.ready(plans[number], 5).name

    threads = [threading.Thread(target=start, args=(number,)) for number in range(len(plans))]
    for each in threads:
        each.start()
    for each in threads:
        each.join(10)
    assert found[0] == found[2] != found[1]
    assert sorted(memory(run).pods) == sorted(set(found))
    assert memory(run).watches == 1
