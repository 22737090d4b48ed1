"""Causes that are really injected into one of two equal workers: each is named, and without one there is none."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from gputax.environments.bare import Bare
from gputax.environments.process import ChildProcess
from gputax.measure.duet.causes import Cause, explain
from gputax.measure.duet.pairs import Slot
from gputax.measure.duet.recorded import SideFacts
from gputax.measure.duet.sides import SideSpec, WorkerSide
from gputax.plan.cells import Setup
from gputax.results.documents.comparison import Comparison
from gputax.sharing.cpu_quota import QuotaGroups, quota_of
from tests.builders.small_models import small_store
from tests.standins import control_groups

Gputax = Callable[..., subprocess.CompletedProcess[str]]
Inject = Callable[[int], None]
# A few milliseconds on two threads, all of them at work: waiting threads would hide a missing CPU.
HIDDEN, BATCH = 1024, 8
SLOTS, SLOT = 8, Slot(runs=4, dropped=1)
# A scheduler lets a thread that has slept run at once, whatever its weight: only in long slots does a weight count.
LONG_SLOT = Slot(runs=24, dropped=4)
BURN = "while True: pass"


class Injected(Bare):
    """A bare worker to which something is done between its start and its first load, so that every thread has it."""

    def __init__(self, inject: Inject) -> None:
        super().__init__()
        self._inject = inject

    def start(self) -> ChildProcess:
        process = super().start()
        self._inject(process.pid)
        return process


def side(label: str, setup: Setup, inject: Inject | None) -> WorkerSide:
    made = WorkerSide(SideSpec(label, "bare", setup), "saturate", BATCH)
    if inject is not None:
        made._environment = Injected(inject)
    return made


def measured(
    inject: Inject | None, beside: AbstractContextManager[None] | None = None, slot: Slot = SLOT, **changes: Any
) -> tuple[SideFacts, SideFacts, Cause | None]:
    """Let an ordinary worker and an injected one take turns; return what both recorded and what explains it.

    `beside` is what goes on while they are measured; loading is spared it.
    """
    setup = Setup("resnet50", engine="onnx", device="cpu", threads=2, max_batch=BATCH, sample_count=BATCH)
    a, b = side("a", setup, None), side("b", dataclasses.replace(setup, **changes), inject)
    try:
        for each in (a, b):
            each.start()
            each.begin("resnet50")
        with beside or nullcontext():
            for number in range(SLOTS):
                for each in (a, b) if number % 2 else (b, a):
                    each.run_slot(slot, number)
        for each in (a, b):
            each.prove()
        facts = a.recorded("resnet50"), b.recorded("resnet50")
    finally:
        a.end()
        b.end()
    assert facts[0].wall_ms
    assert facts[1].wall_ms
    return *facts, explain(*facts, 100.0 * (facts[1].wall_ms / facts[0].wall_ms - 1.0))


@contextmanager
def busy_cpus() -> Iterator[None]:
    """Keep every CPU busy: only then does a weight matter."""
    burners = [
        subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(2 * len(os.sched_getaffinity(0)))
    ]  # fmt: skip
    try:
        yield
    finally:
        for each in burners:
            each.kill()
            each.wait()


@pytest.fixture(autouse=True)
def _small_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTAX_MODELS", str(small_store(tmp_path / "models", HIDDEN)))


needs_two_cpus = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
needs_groups = pytest.mark.skipif(not control_groups.may_be_made(), reason="control groups may not be made here")


@needs_groups
def test_a_cpu_quota_is_named() -> None:
    groups = QuotaGroups()
    try:
        group = groups.group("b", quota_of(0.25))
        _, b, cause = measured(group.add)
    finally:
        groups.close()
    assert cause is not None, b
    assert cause.code == "throttling", (cause, b)
    assert "the quota of 0.25 CPUs stopped it for" in cause.text
    assert (b.throttled_ms or 0.0) > 0.0


@needs_two_cpus
def test_fewer_cpus_than_threads_are_named() -> None:
    one = {min(os.sched_getaffinity(0))}
    a, b, cause = measured(lambda pid: os.sched_setaffinity(pid, one))
    assert b.cpus == tuple(one)
    assert cause is not None, (a, b)
    assert cause.code == "cpuset", (cause, a, b)


@needs_two_cpus
def test_fewer_threads_are_named() -> None:
    a, b, _ = measured(None, threads=1)
    # On busy cores one thread may be the faster one; the difference is stated, what both recorded is real.
    cause = explain(a, b, 30.0)
    assert cause is not None
    assert (cause.code, cause.text) == ("threads", "fewer threads: 1 instead of 2")


def test_a_low_priority_is_named_where_it_waits() -> None:
    lower = os.getpriority(os.PRIO_PROCESS, 0) + 9
    a, b, _ = measured(lambda pid: os.setpriority(os.PRIO_PROCESS, pid, lower))
    assert b.nice == lower
    # Kernels that group processes by session let a nice level count within a session only, so the wait is stated.
    assert a.wall_ms
    waits = dataclasses.replace(b, run_wait_ms=(a.run_wait_ms or 0.0) + 2.0 * a.wall_ms, steal_ms=a.steal_ms)
    cause = explain(a, waits, 100.0)
    assert cause is not None, (a, b)
    assert cause.code == "weight", (cause, a, b)
    assert f"nice {lower} instead of " in cause.text


@needs_groups
def test_a_light_group_beside_other_work_is_named() -> None:
    groups = QuotaGroups()
    try:
        # A quota that binds nobody; the weight is what differs, while it is measured.
        group = groups.group("b", quota_of(float(os.cpu_count() or 1)))
        a, b, cause = measured(group.add, light(group.path), LONG_SLOT)
    finally:
        groups.close()
    assert (b.cpu_weight or 1.0) < 0.2
    assert cause is not None, (a, b)
    assert cause.code == "weight", (cause, a, b)
    assert "a group's weight of" in cause.text


@contextmanager
def light(group: Path) -> Iterator[None]:
    """Give a group and the one above it a tenth of an ordinary weight, beside busy CPUs; it stays light."""
    files = {"cpu.shares": "102", "cpu.weight": "10"}
    name = next(name for name in files if (group / name).exists())
    for each in (group, group.parent):
        (each / name).write_text(files[name])
    with busy_cpus():
        yield


def test_two_equal_sides_have_no_cause(gputax: Gputax, tmp_path: Path) -> None:
    done = gputax(
        "duet", "bare", "bare", "--engine", "synthetic:latency_us=3000", "--max-time", "12", "--json", "--out", "d"
    )
    assert done.returncode in (0, 6, 7), done.stderr
    found = Comparison.model_validate_json(done.stdout).explanations
    assert [each for each in found if each.code is not None] == [], "a difference by chance has no cause either"


def test_a_difference_without_a_recorded_cause_is_said_to_have_none(gputax: Gputax) -> None:
    engines = ("--engine", "synthetic:latency_us=4000", "--engine-b", "synthetic:latency_us=8000")
    done = gputax("duet", "bare", "bare", *engines, "--max-time", "20", "--no-control", "--out", "d")
    assert done.returncode in (6, 7), done.stderr
    assert "Why bare (B) is slower: none of what was recorded explains it" in " ".join(done.stdout.split())


def test_calls_through_the_proxy_are_named_while_kernels_are_equal(gputax: Gputax) -> None:
    words = ("--workload", "micro:launch", "--device", "software", "--soft-kernel-us", "200", "--proxy-spin", "never")
    done = gputax("duet", "bare", "bare+proxy", *words, "--max-time", "20", "--no-control", "--json", "--out", "d")
    assert done.returncode in (0, 6, 7), done.stderr
    comparison = Comparison.model_validate_json(done.stdout)
    (found,) = comparison.explanations
    assert (found.slower, found.code) == ("bare+proxy", "host-calls"), [side.recorded for side in comparison.sides]
    kernels = [side.recorded["micro:launch"]["kernel_us"] for side in comparison.sides]
    assert kernels == [pytest.approx(200.0, rel=0.1)] * 2
