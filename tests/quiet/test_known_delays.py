"""The tool against the truth: programmed delays must come back as the measured figures.

A busy host can only make things slower. So each figure has a hard lower bound, and it is the undisturbed part of the
samples (a low quantile) that must meet the truth closely.
"""

from __future__ import annotations

import time

import numpy as np
import pytest

from gputax.measure.run.cell import Measured, measure_cell
from gputax.measure.session import WorkerSession
from gputax.measure.view import SilentView
from gputax.places import environment_named
from gputax.plan.cells import Cell, LoadPlan, Setup
from gputax.worker.engines.synthetic import wait_until_ns
from gputax.worker.loads.arrivals import poisson_offsets_ns


def measured(engine: str, scenario: str, batch: int, load: LoadPlan) -> Measured:
    setup = Setup("resnet50", engine=engine, max_batch=max(batch, 8))
    session = WorkerSession(environment_named("bare"), setup, SilentView())
    try:
        return measure_cell(session, Cell(setup, scenario, batch, load=load), SilentView())
    finally:
        session.end()


def undisturbed(result: Measured) -> float:
    columns = result.observation.columns
    return float(np.quantile(columns["end_ns"] - columns["start_ns"], 0.1))


def test_the_synthetic_delay_is_exact_to_microseconds() -> None:
    errors = []
    for _ in range(200):
        deadline = time.perf_counter_ns() + 300_000
        wait_until_ns(deadline)
        errors.append(time.perf_counter_ns() - deadline)
    assert min(errors) >= 0
    # The lower quartile: on a busy host any thread may lose its CPU for a while.
    assert np.quantile(errors, 0.25) < 5_000


def test_single_stream_reports_the_programmed_latency() -> None:
    result = measured("synthetic:latency_us=2000", "single-stream", 1, LoadPlan(duration_s=0, min_samples=700))
    assert result.valid
    assert result.figures.min_ns >= 2_000_000
    assert undisturbed(result) == pytest.approx(2_000_000, rel=0.02)


def test_offline_reports_the_programmed_throughput() -> None:
    result = measured("synthetic:latency_us=2000,per_sample_us=250", "offline", 8, LoadPlan(duration_s=1))
    assert result.valid
    # 8 samples per 2 ms + 8 x 0.25 ms
    assert undisturbed(result) == pytest.approx(4_000_000, rel=0.02)
    assert 1000 < result.figures.throughput_per_s <= 2000
    calls = result.observation.columns["end_ns"] - result.observation.columns["start_ns"]
    assert result.figures.throughput_per_s == pytest.approx(8e9 / calls.mean(), rel=0.05), "nothing between the calls"


def test_multi_stream_runs_eight_samples_per_query() -> None:
    plan = LoadPlan(duration_s=0, min_samples=100)
    result = measured("synthetic:latency_us=1000,per_sample_us=100", "multi-stream", 8, plan)
    assert result.figures.samples == 8 * result.figures.queries
    assert undisturbed(result) == pytest.approx(1_800_000, rel=0.04)


def test_server_latency_counts_from_the_scheduled_arrival() -> None:
    # One server, constant service time S, Poisson arrivals at 30 % load: with LoadGen's own arrival times the
    # queue can be computed exactly, query by query. This is the independent oracle for every latency.
    service_ns, rate = 4_000_000, 75.0
    plan = LoadPlan(duration_s=0, min_samples=300, qps=rate, percentile=0.9)
    result = measured("synthetic:latency_us=4000", "server", 1, plan)
    from gputax.plan.cells import SCHEDULE_SEED

    arrivals = poisson_offsets_ns(SCHEDULE_SEED, rate, result.figures.queries)
    free_at, expected = 0, []
    for arrival in arrivals:
        free_at = max(int(arrival), free_at) + service_ns
        expected.append(free_at - int(arrival))
    columns = result.observation.columns
    latency = columns["end_ns"] - columns["scheduled_ns"]
    excess = latency - np.array(expected)
    assert np.quantile(excess, 0.1) < 500_000, "the undisturbed queries wait exactly as long as the queue says"
    assert np.all(latency >= np.array(expected) - 200_000), "a query faster than the exact queue allows"


def test_our_clock_agrees_with_loadgens() -> None:
    result = measured("synthetic:latency_us=3000", "single-stream", 1, LoadPlan(duration_s=0, min_samples=700))
    assert result.log is not None
    for name, percent in (("p50", "50.00"), ("p90", "90.00")):
        assert result.figures.latency_ns[name] == pytest.approx(result.log.percentile_ns(percent), rel=0.1)


def test_jitter_comes_back_as_spread() -> None:
    plan = LoadPlan(duration_s=0, min_samples=700)
    result = measured("synthetic:latency_us=2000,jitter_us=200,seed=3", "single-stream", 1, plan)
    columns = result.observation.columns
    low, middle = np.quantile(columns["end_ns"] - columns["start_ns"], [0.1587, 0.5])
    assert middle - low == pytest.approx(200_000, rel=0.3), "one standard deviation below the median"


def test_the_batcher_forms_batches_only_when_queries_wait() -> None:
    busy = LoadPlan(duration_s=0, min_samples=600, qps=1000, percentile=0.9)
    result = measured("synthetic:latency_us=4000,per_sample_us=200", "server", 32, busy)
    assert result.figures.mean_batch > 3
    idle = LoadPlan(duration_s=0, min_samples=100, qps=40, percentile=0.9)
    assert measured("synthetic:latency_us=1000", "server", 32, idle).figures.mean_batch < 1.2


def test_the_peak_is_found_where_the_queue_must_break(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputax.measure.run.cell.PROBE_S", 0.8)
    plan = LoadPlan(duration_s=0, min_samples=100, find_peak=True, bound_ms=40.0, percentile=0.9)
    result = measured("synthetic:latency_us=5000", "server", 1, plan)
    # Above its capacity of 200/s a queue grows without end; 40 ms hold up to about 90 % of it.
    assert 80 < result.observation.load.target_qps < 210
    assert [each.kind for each in result.attempts].count("probe") >= 4
    assert result.rate_source.startswith("peak: ")
