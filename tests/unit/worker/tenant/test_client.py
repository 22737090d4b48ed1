"""The tenant against the truth: an engine whose delays are programmed."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from gputax.errors import EngineError
from gputax.plan.cells import Setup
from gputax.worker.engines import synthetic
from gputax.worker.engines.synthetic import SyntheticEngine
from gputax.worker.halt import Halt
from gputax.worker.tenant import client
from gputax.worker.tenant.client import Course, Failures, TenantPlan, arrival_seed, run_tenant
from gputax.worker.tenant.metrics import TenantMetrics
from gputax.worker.tenant.tally import Tally


@pytest.fixture
def halt() -> Iterator[Halt]:
    halt = Halt()
    yield halt
    halt.close()


def plan(engine: str, **more: Any) -> TenantPlan:
    batch = more.get("batch", 1)
    setup = Setup("yolos-small", engine=engine, sample_count=batch, max_batch=batch)
    return TenantPlan(setup, **{"warmup_s": 0.05, **more})


def served(plan: TenantPlan, halt: Halt, target_ns: int = 0) -> tuple[TenantMetrics, Course, list[str]]:
    metrics, course, said = TenantMetrics(Tally(target_ns)), Course(), list[str]()
    run_tenant(plan, metrics, course, halt, said.append)
    return metrics, course, said


class VirtualTime(Halt):
    """A clock, an order to stop and engines on it: runs and waits take their time without taking ours."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.now_ns, self.order_at_ns = 0, sys.maxsize
        monkeypatch.setattr(synthetic, "wait_until_ns", self._pass_until)
        monkeypatch.setattr(synthetic, "time", SimpleNamespace(perf_counter_ns=self.clock))

    def clock(self) -> int:
        return self.now_ns

    def wait(self, seconds: float) -> bool:
        if not self.ordered:
            self._pass_until(self.now_ns + round(seconds * 1e9))
        return self.ordered

    def _pass_until(self, deadline_ns: int) -> None:
        self.now_ns = max(self.now_ns, deadline_ns)
        if self.now_ns >= self.order_at_ns:
            self.order()

    def served(self, plan: TenantPlan, target_ns: int = 0) -> tuple[TenantMetrics, Course, list[str]]:
        metrics, course, said = TenantMetrics(Tally(target_ns)), Course(), list[str]()
        run_tenant(plan, metrics, course, self, said.append, self.clock)
        return metrics, course, said


@pytest.fixture
def virtual(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualTime]:
    made = VirtualTime(monkeypatch)
    yield made
    made.close()


def sample(metrics: TenantMetrics, name: str) -> float:
    value = metrics.registry.get_sample_value(name)
    assert value is not None, name
    return value


def test_sum_over_count_is_the_programmed_latency(virtual: VirtualTime) -> None:
    metrics, course, _ = virtual.served(plan("synthetic:latency_us=20000,jitter_us=500", duration_s=12.0))
    total, count = (sample(metrics, f"inference_time_seconds_{part}") for part in ("sum", "count"))
    latencies_ns = metrics.tally.last_latencies_ns()
    assert count == len(latencies_ns) == pytest.approx(600, abs=3)
    assert total == int(latencies_ns.sum()) / 1e9, "exactly the samples' own sum"
    assert total / count == pytest.approx(0.02, rel=0.01)
    assert course.seconds == pytest.approx(total), "nothing between the runs"
    assert not metrics.ready, "a tenant that has ended is not ready"


def test_on_the_real_clock_no_run_is_shorter_than_programmed(halt: Halt) -> None:
    metrics, _, _ = served(plan("synthetic:latency_us=5000", duration_s=0.05), halt)
    assert metrics.tally.counts().min_ns >= 5_000_000


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """When each run of the engine started, warm-up runs among them."""
    started, run = list[int](), SyntheticEngine.run

    def noted(engine: SyntheticEngine, first: int, count: int) -> None:
        started.append(time.perf_counter_ns())
        run(engine, first, count)

    monkeypatch.setattr(SyntheticEngine, "run", noted)
    return started


def test_warm_up_runs_are_not_counted(halt: Halt, runs: list[int]) -> None:
    metrics, course, _ = served(plan("synthetic:latency_us=1000", warmup_s=0.1, duration_s=0.1), halt)
    warm = [at for at in runs if at < course.started_ns]
    assert len(warm) >= 3
    assert metrics.tally.counts().runs == len(runs) - len(warm) > 0


def test_a_slow_model_is_warmed_by_three_runs_at_least(halt: Halt, runs: list[int]) -> None:
    metrics, course, _ = served(plan("synthetic:latency_us=30000", warmup_s=0, duration_s=0.01), halt)
    assert len(runs) == 4
    assert metrics.tally.counts().runs == 1, "the running inference ends, though the duration is over"
    assert course.seconds >= 0.03


def test_a_batch_is_so_many_inferences(halt: Halt) -> None:
    metrics, _, _ = served(plan("synthetic:latency_us=500", batch=8, duration_s=0.05), halt)
    counts = metrics.tally.counts()
    assert counts.inferences == 8 * counts.runs > 0


def test_an_order_ends_it_after_the_running_inference(virtual: VirtualTime) -> None:
    virtual.order_at_ns = 900_000_000  # three runs of warm-up, and in the middle of the next
    metrics, course, _ = virtual.served(plan("synthetic:latency_us=250000", warmup_s=0))
    counts = metrics.tally.counts()
    assert counts.runs == 1
    assert counts.sum_ns == 250_000_000, "the run was not cut short"
    assert course.ended_ns == 1_000_000_000


def test_an_order_while_the_model_loads_ends_it_before_anything_is_counted(halt: Halt) -> None:
    halt.order()
    metrics, course, _ = served(plan("synthetic:latency_us=250000"), halt)
    assert metrics.tally.counts().runs == 0
    assert course.seconds < 0.2


def test_poisson_arrivals_come_at_their_rate_and_the_target_is_judged(virtual: VirtualTime) -> None:
    metrics, course, _ = virtual.served(
        plan("synthetic:latency_us=200", rate_per_s=400.0, duration_s=15.0), target_ns=10**9
    )
    counts = metrics.tally.counts()
    # 6000 arrivals, ± 4 standard deviations.
    assert 5690 < counts.runs + course.unserved < 6310
    assert course.seconds == pytest.approx(15.0, abs=0.001)
    assert sample(metrics, "inferences_within_target_total") == counts.inferences
    assert counts.min_ns >= 200_000


def test_a_rate_beyond_the_device_shows_in_the_latency(virtual: VirtualTime) -> None:
    metrics, course, _ = virtual.served(
        plan("synthetic:latency_us=20000", rate_per_s=200.0, duration_s=0.6), 25_000_000
    )
    counts = metrics.tally.counts()
    assert counts.max_ns > 100_000_000, "a closed loop would have shown 20 ms"
    assert course.unserved > 20
    assert counts.within_target < counts.inferences / 2


def test_an_open_loop_that_waits_hears_the_order(halt: Halt) -> None:
    timer = threading.Timer(0.3, halt.order)
    timer.start()
    started = time.monotonic()
    _, course, _ = served(plan("synthetic:latency_us=10", rate_per_s=0.001, duration_s=600), halt)
    timer.join()  # it may be seen before it has written into the pipe, which is closed next
    assert time.monotonic() - started < 8
    assert course.unserved == 0


def test_failures_are_counted_said_once_and_end_it_after_ten_in_a_row(
    halt: Halt, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PAUSE_AFTER_ERROR_S", 0.001)
    metrics, course, said = TenantMetrics(Tally()), Course(), list[str]()
    with pytest.raises(EngineError, match=r"10 inferences in a row failed.*as programmed"):
        run_tenant(plan("synthetic:latency_us=10,fail_after=8000"), metrics, course, halt, said.append)
    assert sample(metrics, "inference_errors_total") == 10
    assert sample(metrics, "inferences_total") > 0
    assert capsys.readouterr().err.count("Traceback") == 1
    assert sum("an inference failed" in line for line in said) == 1


def test_a_failure_between_successes_is_only_counted(halt: Halt, capsys: pytest.CaptureFixture[str]) -> None:
    halt.order()  # so that no pause is waited for
    failures = Failures(Tally(), halt, lambda _: None)
    for _ in range(5):
        for _ in range(9):
            failures.add(ValueError("a passing trouble"))
        failures.in_a_row = 0
    assert failures._tally.counts().errors == 45
    for _ in range(9):
        failures.add(ValueError("a lasting trouble"))
    with pytest.raises(EngineError) as ended:
        failures.add(ValueError("a lasting trouble"))
    assert ended.value.exit_code == 4
    assert isinstance(ended.value.__cause__, ValueError)
    assert capsys.readouterr().err.count("Traceback") <= 1


def test_a_device_that_fails_now_and_then_goes_on(halt: Halt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PAUSE_AFTER_ERROR_S", 0.0)
    calls = 0

    def run(engine: SyntheticEngine, first: int, count: int) -> None:
        nonlocal calls
        calls += 1
        if calls % 3 == 0:
            raise ValueError("now and then")
        if calls > 100:
            halt.order()

    monkeypatch.setattr(SyntheticEngine, "run", run)
    for rate_per_s in (0.0, 1e6):
        metrics, _, _ = served(plan("synthetic", rate_per_s=rate_per_s, warmup_s=0), halt)
        counts = metrics.tally.counts()
        assert counts.errors == 33
        assert counts.runs == 101 - 33 - 3, "three more were the warm-up"
        calls, halt.ordered = 0, False


def test_a_tenant_of_many_days_keeps_no_garbage(halt: Halt, monkeypatch: pytest.MonkeyPatch) -> None:
    collecting: list[bool] = []
    monkeypatch.setattr(SyntheticEngine, "run", lambda *_: collecting.append(gc.isenabled()))
    served(plan("synthetic", warmup_s=0, duration_s=0.01), halt)
    assert collecting
    assert all(collecting), "a scrape leaves cycles behind, and nobody else would take them away"


def test_the_interpreter_is_left_as_it_was(halt: Halt) -> None:
    before = (sys.getswitchinterval(), gc.isenabled(), gc.get_freeze_count())
    served(plan("synthetic:latency_us=100", duration_s=0.02), halt)
    assert (sys.getswitchinterval(), gc.isenabled(), gc.get_freeze_count()) == before


def test_the_tenant_is_introduced_with_what_the_engine_tells(halt: Halt) -> None:
    metrics, course, said = served(plan("synthetic", duration_s=0.01, technique="cpu-shared"), halt)
    assert course.labels["technique"] == "cpu-shared"
    assert course.labels["device_label"] == "CPU (programmed delay, no computation), not a GPU"
    assert sample_labels(metrics) == course.labels
    assert said[-1] == "running on CPU (programmed delay, no computation), not a GPU"


def sample_labels(metrics: TenantMetrics) -> dict[str, str]:
    (labels,) = [each.labels for family in metrics.collect() for each in family.samples if each.name.endswith("_info")]
    return labels


def test_pods_of_one_deployment_do_not_arrive_as_one() -> None:
    assert arrival_seed(7, "client-a") != arrival_seed(7, "client-b")
    assert arrival_seed(7, "client-a") == arrival_seed(7, "client-a")
