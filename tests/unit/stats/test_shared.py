"""The common window and the figures over repeats, on hand-made columns."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gputax.errors import ResultsError
from gputax.stats.shared import (
    PROCESS_LUCK,
    REPEATS_THAT_SHOW_LUCK,
    TenantRuns,
    Window,
    common_window,
    replicated,
    served,
    served_together,
    slowdown,
)

MS = 1_000_000


def tenant(first_ms: float, run_ms: float, runs: int, samples: int = 1) -> TenantRuns:
    start = (first_ms + run_ms * np.arange(runs)) * MS
    return TenantRuns(
        start.astype(np.int64), (start + run_ms * MS).astype(np.int64), np.full(runs, samples, dtype=np.int64)
    )


class TestWindow:
    def test_begins_with_the_last_starter_plus_the_warm_up_and_ends_with_the_first_to_end(self) -> None:
        early, late = tenant(0, 10, 100), tenant(50, 10, 110)  # 0..1000 and 50..1150
        window = common_window([early, late], 0, warmup_s=0.2)
        assert (window.begin_ns, window.end_ns) == (250 * MS, 1000 * MS)
        assert window.seconds == pytest.approx(0.75)
        assert window.overlap_share == pytest.approx(950 / 1150), "the warm-up counts: all ran together in it"

    def test_the_time_counts_from_the_release_even_if_nobody_began_then(self) -> None:
        assert common_window([tenant(100, 10, 90)], 0, 0.0).overlap_share == pytest.approx(0.9)

    def test_one_tenant_alone_overlaps_with_itself_all_the_time(self) -> None:
        assert common_window([tenant(0, 10, 100)], 0, 0.1).overlap_share == 1.0

    def test_keeps_only_runs_that_lie_wholly_inside(self) -> None:
        window = common_window([tenant(0, 100, 10), tenant(5, 100, 10)], 0, warmup_s=0.145)  # 150..1000
        kept = window.holds(tenant(0, 100, 10))
        assert kept.tolist() == [False, False] + [True] * 8, "the run from 100 to 200 began before the window"
        assert window.holds(tenant(5, 100, 10)).tolist() == [False, False] + [True] * 7 + [False]

    def test_tenants_that_never_ran_together_are_refused(self) -> None:
        with pytest.raises(ResultsError, match="ran together for 0 s, of which 0 s are warm-up"):
            common_window([tenant(0, 10, 10), tenant(500, 10, 10)], 0, 0.0)

    def test_a_warm_up_longer_than_the_load_is_refused(self) -> None:
        with pytest.raises(ResultsError, match=r"0\.1 s, of which 2 s are warm-up"):
            common_window([tenant(0, 10, 10)], 0, 2.0)

    def test_a_tenant_without_a_run_is_named(self) -> None:
        with pytest.raises(ResultsError, match="tenant 2"):
            common_window([tenant(0, 10, 10), tenant(0, 10, 0)], 0, 0.0)


class TestServed:
    def test_the_rate_does_not_depend_on_where_the_window_cuts(self) -> None:
        runs = tenant(3, 100, 20)
        for warmup_s in (0.0, 0.05, 0.101, 0.177):
            window = common_window([runs, tenant(0, 99, 20)], 0, warmup_s)
            assert served(runs, window).throughput_per_s == pytest.approx(10.0)

    def test_a_batch_counts_its_samples(self) -> None:
        runs = tenant(0, 100, 20, samples=8)
        assert served(runs, common_window([runs], 0, 0.0)).throughput_per_s == pytest.approx(80.0)

    def test_percentiles_wait_for_their_floor(self) -> None:
        few, more = tenant(0, 10, 9), tenant(0, 10, 64)
        assert served(few, common_window([few], 0, 0.0)).p50_ms is None
        figures = served(more, common_window([more], 0, 0.0))
        assert (figures.p50_ms, figures.p90_ms, figures.p99_ms) == (10.0, 10.0, None)

    def test_no_run_inside_is_refused_with_the_length_of_a_run(self) -> None:
        slow, quick = tenant(0, 400, 2), tenant(0, 100, 8)
        with pytest.raises(ResultsError, match=r"a run takes 0\.4 s"):
            served(slow, common_window([slow, quick], 0, 0.45))

    def test_together_each_run_counts_once_as_in_the_users_query(self) -> None:
        slow, quick = tenant(0, 100, 10), tenant(0, 50, 20)
        together = served_together([slow, quick], common_window([slow, quick], 0, 0.0))
        assert together.runs == 30
        assert together.mean_ms == pytest.approx((10 * 100 + 20 * 50) / 30)
        assert together.throughput_per_s == pytest.approx(30.0)


class TestReplicated:
    def test_is_the_geometric_mean_with_a_t_interval_on_the_log_scale(self) -> None:
        found = replicated([1.0, 2.0, 4.0])
        assert found.value == pytest.approx(2.0)
        half = 4.302652729911275 * math.log(2) / math.sqrt(3)  # t(0.975, 2), sd ln 2
        assert found.ci95 == pytest.approx((2.0 * math.exp(-half), 2.0 * math.exp(half)))

    def test_one_repeat_has_no_interval(self) -> None:
        assert replicated([3.0]).ci95 is None

    def test_a_repeat_without_the_figure_leaves_none(self) -> None:
        assert replicated([3.0, None]).value is None
        assert replicated([]).value is None

    def test_an_index_of_fairness_never_passes_one(self) -> None:
        found = replicated([1.0, 0.5], most=1.0)
        assert found.ci95 is not None
        assert found.ci95[1] == 1.0

    def test_a_few_repeats_without_spread_still_have_the_luck_of_their_processes(self) -> None:
        found = replicated([2.0] * 5)
        assert found.ci95 == pytest.approx((2.0 * math.exp(-PROCESS_LUCK), 2.0 * math.exp(PROCESS_LUCK)))
        assert replicated([2.0] * REPEATS_THAT_SHOW_LUCK).ci95 == pytest.approx((2.0, 2.0))
        assert replicated([0.9] * 3, most=1.0, luck=0.0).ci95 == pytest.approx((0.9, 0.9))

    def test_repeats_far_apart_stay_finite(self) -> None:
        found = replicated([1e-9, 1e9])
        assert found.ci95 is not None
        assert math.isfinite(found.ci95[1])


def test_slowdown_is_paired_by_repeat_so_that_a_slow_hour_cancels() -> None:
    alone, shared = {1: 10.0, 2: 20.0, 3: 40.0}, {1: 30.0, 2: 60.0, 3: 120.0}
    found = slowdown(alone, shared)
    assert found.value == pytest.approx(3.0)
    # No spread is left but the luck of processes that so few repeats cannot show, of both sides.
    least = math.exp(math.sqrt(2.0) * PROCESS_LUCK)
    assert found.ci95 == pytest.approx((3.0 / least, 3.0 * least))


def test_slowdown_takes_the_repeats_that_both_have() -> None:
    assert slowdown({1: 10.0, 2: 20.0}, {2: 30.0, 3: 99.0}).value == pytest.approx(1.5)
    assert slowdown({}, {1: 30.0}).value is None


def test_a_bounded_figure_has_a_bounded_interval() -> None:
    wide = replicated([0.4, 0.99], least=1 / 3, most=1.0)
    assert wide.ci95 == (1 / 3, 1.0)
    assert replicated([0.9, 0.9, 0.9], least=1 / 3, most=1.0).value == pytest.approx(0.9)


def test_tokens_of_the_window_are_counted_and_ranked() -> None:
    start = np.arange(100, dtype=np.int64) * 1_000_000
    runs = TenantRuns(
        start, start + 900_000, np.ones(100, np.int64), np.full(100, 4), {"ttft": np.linspace(1e5, 2e5, 100)}
    )
    window = Window(10_000_000, 99_900_000, 1.0)
    one = served(runs, window)
    # 90 runs of four tokens in 89.9 ms.
    assert one.tokens["tokens_per_sec"] == pytest.approx(360 / 0.0899)
    assert one.tokens["ttft_p50_ms"] == pytest.approx(0.155, abs=0.001)
    assert one.tokens["ttft_p99_ms"] is None
    both = served_together([runs, runs], window)
    assert both.tokens["tokens_per_sec"] == pytest.approx(2 * 360 / 0.0899)
    assert both.tokens["ttft_p90_ms"] == one.tokens["ttft_p90_ms"]


def test_without_tokens_there_are_no_figures_of_them() -> None:
    start = np.arange(20, dtype=np.int64) * 1_000_000
    runs = TenantRuns(start, start + 900_000, np.ones(20, np.int64))
    assert served_together([runs], Window(0, 20_000_000, 1.0)).tokens == {}
