from __future__ import annotations

import numpy as np
import pytest

from gputax.measure.sizing import Bound, Pilot, query_count, read_pilot, server_bound, server_load, stream_load
from gputax.plan.cells import Cell, LoadPlan, Setup

FAST = Pilot(1, call_ns=2e6, p90_call_ns=2.5e6, rate_per_s=500.0, elapsed_s=1.0)
SLOW = Pilot(1, call_ns=28e6, p90_call_ns=30e6, rate_per_s=36.0, elapsed_s=1.0)


def cell(scenario: str, batch: int = 1, workload: str = "resnet50", **load: float) -> Cell:
    return Cell(Setup(workload), scenario, batch, load=LoadPlan(**{"duration_s": 0.0, **load}))  # type: ignore[arg-type]


def test_the_pilot_is_read_from_its_settled_half() -> None:
    calls = np.array([100, 90, 10, 10, 12, 10], dtype=np.int64) * 1_000_000
    ends = np.cumsum(calls)
    pilot = read_pilot(4, {"start_ns": ends - calls, "end_ns": ends, "samples": np.full(6, 4)})
    assert pilot.call_ns == 10e6
    assert pilot.rate_per_s == pytest.approx(4 / (32e-3 / 3))


@pytest.mark.parametrize(
    ("plan", "rate", "expected"),
    [
        (LoadPlan(duration_s=0, min_samples=662, max_duration_s=15), 500.0, 662),
        (LoadPlan(duration_s=0, min_samples=662, max_duration_s=15), 20.0, 300),
        (LoadPlan(duration_s=0, min_samples=662, max_duration_s=15), 0.4, 64),
        (LoadPlan(duration_s=600, min_samples=64), 100.0, 60_000),
    ],
)
def test_the_number_of_queries(plan: LoadPlan, rate: float, expected: int) -> None:
    assert query_count(plan, rate) == expected


def test_single_stream_hints_a_fourfold_reserve_to_loadgen() -> None:
    load = stream_load(cell("single-stream", min_samples=100), FAST)
    assert load.expected_latency_ns == 1_000_000
    assert load.min_queries == 100


def test_offline_is_sized_by_whole_batches_so_that_a_fast_moment_cannot_make_it_invalid() -> None:
    load = stream_load(cell("offline", 32, duration_s=10), SLOW)
    assert load.min_queries == 384, "10 s at 36/s, rounded up to batches of 32"
    assert load.min_duration_s == 0


def test_offline_asks_for_five_batches_at_least() -> None:
    assert stream_load(cell("offline", 32, duration_s=0.1, min_samples=1), SLOW).min_queries == 160


def test_official_offline_keeps_the_official_count() -> None:
    official = Cell(Setup("resnet50"), "offline", 32, load=LoadPlan(600, 24576, official=True))
    assert stream_load(official, SLOW).min_queries == 24576


def test_the_bound_is_the_workloads_where_the_device_can_meet_it() -> None:
    assert server_bound(cell("server"), FAST) == Bound(15.0, "MLPerf")
    assert server_bound(cell("server", workload="yolos-small"), SLOW) == Bound(100.0, "ours")


def test_a_device_that_cannot_meet_the_bound_gets_a_stated_multiple_of_its_own() -> None:
    bound = server_bound(cell("server"), SLOW)
    assert bound.ms == 300.0
    assert bound.source.startswith("ours: 10 x this device's single-request p90 (30 ms)")


def test_a_given_bound_wins() -> None:
    assert server_bound(cell("server", bound_ms=7.0), SLOW).ms == 7.0


def test_the_server_load_carries_rate_bound_and_percentile() -> None:
    load = server_load(cell("server", 8, percentile=0.9), 20.0, Bound(300.0, ""), 100, seed_offset=2)
    assert (load.target_qps, load.bound_ns, load.percentile, load.min_queries, load.seed_offset) == (
        20.0,
        300_000_000,
        0.9,
        100,
        2,
    )
