"""Figures from hand-made timestamps."""

from __future__ import annotations

import numpy as np
import pytest

from gputax.errors import CellError
from gputax.measure.summary import clock_agreement, summarise
from gputax.results.columns import latencies_ns
from gputax.results.importers.loadgen import LoadGenLog

MS = 1_000_000


def columns(**values: list[int]) -> dict[str, np.ndarray]:
    return {name: np.array(column, dtype=np.int64) for name, column in values.items()}


def test_offline_throughput_is_samples_over_the_whole_span() -> None:
    figures = summarise("offline", columns(start_ns=[0, 10 * MS], end_ns=[10 * MS, 20 * MS], samples=[8, 8]))
    assert figures.throughput_per_s == pytest.approx(800)
    assert figures.samples == 16
    assert figures.mean_batch == 8


def test_server_latency_counts_from_the_schedule_not_from_the_issue() -> None:
    data = columns(scheduled_ns=[0, 5 * MS], issued_ns=[0, 9 * MS], end_ns=[4 * MS, 12 * MS], batch=[1, 1])
    assert latencies_ns("server", data).tolist() == [4 * MS, 7 * MS]


def test_mean_batch_counts_batches_not_queries() -> None:
    data = columns(scheduled_ns=[0, 1, 2, 3], issued_ns=[0, 1, 2, 3], end_ns=[9, 9, 9, 20], batch=[3, 3, 3, 1])
    assert summarise("server", data).mean_batch == pytest.approx(2.0)


def test_percentiles_follow_loadgens_convention() -> None:
    latency = np.arange(1, 1001, dtype=np.int64) * 1000
    data = {"start_ns": np.zeros(1000, dtype=np.int64), "end_ns": latency, "samples": np.ones(1000, dtype=np.int64)}
    figures = summarise("single-stream", data)
    assert figures.latency_ns == {"p50": 501_000, "p90": 901_000, "p95": 951_000, "p99": 991_000}


def test_percentiles_below_their_floor_are_left_out_and_said() -> None:
    latency = np.arange(1, 101, dtype=np.int64)
    data = {"start_ns": np.zeros(100, dtype=np.int64), "end_ns": latency, "samples": np.ones(100, dtype=np.int64)}
    figures = summarise("single-stream", data)
    assert figures.latency_ns["p90"] is not None
    assert figures.latency_ns["p95"] is None
    assert [notice.text.split()[0] for notice in figures.notices] == ["p95", "p99"]


def test_no_samples_is_a_failure_and_not_a_zero() -> None:
    with pytest.raises(CellError, match="without a single sample"):
        summarise("offline", columns(start_ns=[], end_ns=[], samples=[]))


@pytest.mark.parametrize(("theirs_ms", "warned"), [(10.0, False), (10.15, False), (11.0, True), (9.0, True)])
def test_loadgens_clock_is_held_against_ours(theirs_ms: float, warned: bool) -> None:
    data = columns(start_ns=[0] * 20, end_ns=[10 * MS] * 20, samples=[1] * 20)
    log = LoadGenLog({}, True, (), {"result_50.00_percentile_latency_ns": theirs_ms * MS})
    assert bool(clock_agreement(summarise("single-stream", data), log)) is warned


def test_throughput_has_the_spread_of_its_runs() -> None:
    runs = np.array([9, 11] * 50, dtype=np.int64) * MS
    ends = np.cumsum(runs)
    data = {"start_ns": ends - runs, "end_ns": ends, "samples": np.ones(100, dtype=np.int64)}
    half_width = summarise("saturate", data).throughput_half_width_percent
    assert half_width is not None
    assert 0.0 < half_width < 3.0
    few = {name: column[:4] for name, column in data.items()}
    assert summarise("saturate", few).throughput_half_width_percent is None
