"""What a pod's status means: each case is a status as the API server of 1.34 gave it, shortened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from gputax.errors import PreflightError
from gputax.kubernetes import watch as module
from gputax.kubernetes.watch import PodWatch, death_words, event_words, state_of, unschedulable_step
from tests.standins.virtual_clock import VirtualClock

NO_GPU = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. preemption: not helpful."


def pod(
    phase: str = "Pending", *, node: str = "", conditions: Any = (), containers: Any = (), **status: Any
) -> dict[str, Any]:
    return {
        "metadata": {"name": "p"},
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase, "conditions": list(conditions), "containerStatuses": list(containers), **status},
    }


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"state": {"waiting": {"reason": reason, "message": message}}}


READY = pod("Running", node="n", conditions=[{"type": "Ready", "status": "True"}])
UNSCHEDULABLE = pod(
    conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": NO_GPU}]
)
PULL = pod(node="n", containers=[waiting("ImagePullBackOff", 'Back-off pulling image "x"')])
OOM = pod("Failed", node="n", containers=[{"state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}])


@pytest.mark.parametrize(
    ("status", "phase", "words"),
    [
        (READY, "ready", "ready on n"),
        (UNSCHEDULABLE, "waiting", f"Unschedulable: {NO_GPU}"),
        (PULL, "stuck", 'ImagePullBackOff: Back-off pulling image "x"'),
        (OOM, "ended", "OOMKilled, exit code 137"),
        (pod(), "waiting", "waiting for the scheduler"),
        (pod(node="n"), "waiting", "on n, creating the container"),
        (pod("Failed", reason="Evicted", message="low on memory"), "ended", "Evicted; low on memory"),
        (
            pod(node="n", containers=[waiting("CreateContainerError", "no such file")]),
            "stuck",
            "CreateContainerError: no such file",
        ),
        (
            pod("Running", node="n", conditions=[{"type": "Ready", "status": "False", "reason": "NodeNotReady"}]),
            "waiting",
            "not ready on n (NodeNotReady)",
        ),
    ],
)
def test_the_state_of_a_pod(status: dict[str, Any], phase: str, words: str) -> None:
    state = state_of(status)
    assert (state.phase, state.words) == (phase, words)


def test_a_death_is_told_and_a_living_pod_is_not() -> None:
    assert death_words("MODIFIED", READY) == ""
    assert "deleted while it was in use" in death_words("DELETED", READY)
    assert death_words("MODIFIED", OOM) == "the pod ended: OOMKilled, exit code 137"


def test_the_last_warning_counts() -> None:
    events = [
        {"type": "Warning", "reason": "New", "message": "b", "lastTimestamp": "2026-01-01T00:00:09Z"},
        {"type": "Warning", "reason": "Old", "message": "a", "lastTimestamp": "2026-01-01T00:00:01Z"},
        {"type": "Normal", "reason": "Pulled", "message": "c", "lastTimestamp": "2026-01-01T00:00:10Z"},
    ]
    assert event_words(events) == "New: b"
    dns = {"type": "Warning", "reason": "MissingClusterDNS", "message": "d", "lastTimestamp": "2026-01-01T00:00:11Z"}
    assert event_words([dns, *events]) == "New: b"  # the pod starts all the same
    assert event_words(events[2:]) == ""


@pytest.mark.parametrize(
    ("words", "step"),
    [
        ("1 Insufficient nvidia.com/gpu", "--gpus"),
        ("1 Insufficient cpu", "--cpus"),
        ("1 node(s) had untolerated taint {x: y}", "kubectl taint"),
        ("1 node(s) didn't match Pod's node affinity/selector", "kubectl label node"),
        ("something new", "gputax doctor --env k8s"),
    ],
)
def test_the_scheduler_s_reason_leads_to_a_step(words: str, step: str) -> None:
    assert step in unschedulable_step(words)


class FakeCluster:
    """A cluster that tells a story of one pod."""

    namespace = "gputax"

    def __init__(self, *story: tuple[str, dict[str, Any]], events: list[dict[str, Any]] | None = None) -> None:
        self.story, self.events, self.watches = story, events or [], 0

    def watch(self, kind: str, *, labels: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
        self.watches += 1
        yield from self.story

    def list(self, kind: str, **_: Any) -> list[dict[str, Any]]:
        return self.events

    def kubectl(self, *words: str, namespaced: bool = True) -> str:
        return " ".join(["kubectl", "-n", self.namespace, *words])


def watching(cluster: FakeCluster, clock: VirtualClock | None = None) -> PodWatch:
    """Return a watch that has received every event; from there on only virtual time passes."""
    watch = PodWatch(cluster, {}, clock or VirtualClock())  # type: ignore[arg-type]
    watch._thread.join(30)
    return watch


def waited(cluster: FakeCluster, timeout_s: float = 60.0) -> tuple[dict[str, Any], list[str]]:
    said: list[str] = []
    return watching(cluster).wait_ready("p", timeout_s, said.append), said


def refused(cluster: FakeCluster, timeout_s: float = 60.0) -> PreflightError:
    with pytest.raises(PreflightError) as raised:
        waited(cluster, timeout_s)
    return raised.value


def test_a_pod_that_becomes_ready_is_returned_with_one_watch() -> None:
    cluster = FakeCluster(("ADDED", pod()), ("MODIFIED", pod(node="n")), ("MODIFIED", READY))
    live, _ = waited(cluster)
    assert live is READY
    assert cluster.watches == 1


def test_an_image_that_cannot_be_pulled_ends_the_wait_at_once() -> None:
    error = refused(FakeCluster(("ADDED", PULL)))
    assert "Back-off pulling image" in error.what
    assert "--image" in error.next_step


def test_the_scheduler_s_words_end_the_wait_after_a_grace() -> None:
    clock = VirtualClock()
    with pytest.raises(PreflightError) as raised:
        watching(FakeCluster(("ADDED", UNSCHEDULABLE)), clock).wait_ready("p", 600.0, lambda _: None)
    assert module.UNSCHEDULABLE_GRACE_S < clock.time_s <= module.UNSCHEDULABLE_GRACE_S + 1.0
    error = raised.value
    assert NO_GPU in error.what
    assert "--gpus" in error.next_step


def test_a_cluster_that_adds_a_node_is_waited_for() -> None:
    error = refused(FakeCluster(("ADDED", UNSCHEDULABLE), events=[{"reason": "TriggeredScaleUp"}]), timeout_s=120.0)
    assert "not ready after 120 s" in error.what


def test_a_missing_runtime_handler_is_found_in_the_events() -> None:
    event = {
        "type": "Warning",
        "reason": "FailedCreatePodSandBox",
        "message": 'no runtime for "xen-cri" is configured: handler unknown',
    }
    error = refused(FakeCluster(("ADDED", pod(node="n")), events=[event]))
    assert "no runtime for" in error.what
    assert "handler" in error.next_step


def test_a_watch_that_fails_is_told() -> None:
    class Broken(FakeCluster):
        def watch(self, kind: str, *, labels: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
            raise PreflightError("the cluster cannot be reached")
            yield ("", {})

    assert refused(Broken()).what == "the cluster cannot be reached"


class Forgetful(FakeCluster):
    """A cluster whose watch has not reported the pod yet; the API server knows it for some more questions."""

    def __init__(self, knows_for: int) -> None:
        super().__init__()
        self.knows_for = knows_for

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        self.knows_for -= 1
        return pod() if self.knows_for >= 0 else None


def test_a_pod_of_which_the_watch_never_told_is_gone_when_the_api_server_says_so() -> None:
    cluster = Forgetful(knows_for=2)
    assert watching(cluster).wait_gone("p", 10)
    assert cluster.knows_for == -1
    clock = VirtualClock()
    assert not watching(Forgetful(knows_for=99), clock).wait_gone("p", 10)
    assert clock.time_s == pytest.approx(10)


def test_a_pod_is_gone_when_the_watch_says_so() -> None:
    assert watching(FakeCluster(("ADDED", pod()), ("DELETED", pod()))).wait_gone("p", 10)
    assert not watching(FakeCluster(("ADDED", pod()))).wait_gone("p", 10)
