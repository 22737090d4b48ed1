"""Each metric against answers computed by numpy and scipy from the same samples."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from gputax.compare.rows import CellSeries, TooFewSamples, cell_series, with_samples, without_samples
from gputax.errors import ResultsError
from gputax.plan.metrics import METRICS, OVER_BOUND_SHARE
from gputax.results.importers.source import CellSamples

Run = Callable[..., np.ndarray]


def series(latency_ns: np.ndarray, samples: int = 1, bound_ms: float | None = None) -> CellSeries:
    end = np.cumsum(latency_ns)
    counts = np.full(latency_ns.size, samples, dtype=np.int64)
    return cell_series(CellSamples(end - latency_ns, end, counts), bound_ms)


def test_mean_latency_by_fieller(run: Run) -> None:
    a, b = run(10.0, 60, seed=1), run(10.5, 80, seed=2)
    found = with_samples(METRICS["latency_mean"], series(a), series(b))
    assert found.base_value == pytest.approx(a.mean() / 1e6)
    assert found.overhead_percent == pytest.approx(100 * (b.mean() / a.mean() - 1))
    assert found.overhead_absolute == pytest.approx((b.mean() - a.mean()) / 1e6)
    means, halves = (a.mean(), b.mean()), [stats.t.ppf(0.975, x.size - 1) * stats.sem(x) for x in (a, b)]
    terms = means[0] ** 2 - halves[0] ** 2, means[1] ** 2 - halves[1] ** 2
    root = math.sqrt((means[0] * means[1]) ** 2 - terms[0] * terms[1])
    expected = [100 * ((means[0] * means[1] + sign * root) / terms[0] - 1) for sign in (-1, 1)]
    assert found.percent is not None
    assert found.percent.one_sided(0.025) == pytest.approx(expected)
    assert found.absolute is not None
    reach = math.hypot(*halves) / 1e6
    assert found.absolute.one_sided(0.025) == pytest.approx(
        ((means[1] - means[0]) / 1e6 - reach, (means[1] - means[0]) / 1e6 + reach)
    )


def test_throughput_counts_samples_over_the_whole_run() -> None:
    begin = np.array([100, 200, 310], dtype=np.int64)
    samples = CellSamples(begin, begin + 90, np.array([8, 8, 4], dtype=np.int64))
    other = CellSamples(2 * begin, 2 * begin + 180, np.array([8, 8, 4], dtype=np.int64))
    found = with_samples(METRICS["throughput"], cell_series(samples, None), cell_series(other, None))
    assert found.base_value == pytest.approx(20 / 300e-9)
    assert found.other_value == pytest.approx(20 / 600e-9)
    assert found.overhead_percent == pytest.approx(50.0), "half the throughput is lost"
    assert found.absolute is None


def test_rows_that_end_out_of_order_are_put_in_order() -> None:
    samples = CellSamples(np.array([0, 10]), np.array([50, 30]), np.array([1, 1]))
    assert cell_series(samples, None).time_per_sample_ns.tolist() == [30.0, 20.0]


@pytest.mark.parametrize(("name", "p"), [("latency_p50", 0.5), ("latency_p90", 0.9), ("latency_p99", 0.99)])
def test_percentiles_by_loadgens_rank(run: Run, name: str, p: float) -> None:
    a, b = run(10.0, 5000, seed=1), run(10.5, 4000, seed=2)
    found = with_samples(METRICS[name], series(a), series(b))
    low, high = np.sort(a)[int(5000 * p)] / 1e6, np.sort(b)[int(4000 * p)] / 1e6
    assert (found.base_value, found.other_value) == pytest.approx((low, high))
    assert found.overhead_percent == pytest.approx(100 * (high / low - 1))
    assert found.overhead_absolute == pytest.approx(high - low)
    for estimate, value in ((found.percent, found.overhead_percent), (found.absolute, found.overhead_absolute)):
        assert estimate is not None
        assert value is not None
        bounds = estimate.one_sided(0.025)
        assert bounds[0] < value < bounds[1]


def test_below_the_floor_a_percentile_is_refused(run: Run) -> None:
    assert with_samples(METRICS["latency_p99"], series(run(10.0, 662)), series(run(10.0, 662))).percent is not None
    with pytest.raises(TooFewSamples, match="p99 needs 662 samples on each side, there are 5000 and 661"):
        with_samples(METRICS["latency_p99"], series(run(10.0, 5000)), series(run(10.0, 661)))


def test_the_share_of_late_queries(run: Run) -> None:
    a, b = run(10.0, 1000, seed=1), run(10.5, 1000, seed=2)
    found = with_samples(OVER_BOUND_SHARE, series(a, bound_ms=11.0), series(b, bound_ms=11.0))
    shares = [100 * float((side > 11e6).mean()) for side in (a, b)]
    assert (found.base_value, found.other_value) == pytest.approx(tuple(shares))
    assert found.overhead_percent == found.overhead_absolute == pytest.approx(shares[1] - shares[0])
    with pytest.raises(ResultsError, match="no latency bound"):
        with_samples(OVER_BOUND_SHARE, series(a, bound_ms=11.0), series(b))


@pytest.mark.parametrize("bad", [0, -5])
def test_latencies_that_cannot_be_are_counted(run: Run, bad: int) -> None:
    a = run(10.0, 100)
    begin = np.cumsum(a)
    end = begin + a
    end[3], end[7] = begin[3] + bad, begin[7] + bad
    with pytest.raises(ResultsError, match="2 of 100 samples have a latency of zero or less"):
        cell_series(CellSamples(begin, end, np.ones(100, dtype=np.int64)), None)
    with pytest.raises(ResultsError, match="contain no sample"):
        cell_series(CellSamples(begin, begin + a, np.zeros(100, dtype=np.int64)), None)


def test_one_sample_has_no_spread(run: Run) -> None:
    with pytest.raises(ResultsError, match="one value has no spread"):
        with_samples(METRICS["latency_mean"], series(run(10.0, 1)), series(run(10.0, 100)))


@pytest.mark.parametrize(
    ("name", "base", "other", "percent", "absolute"),
    [
        ("throughput", 6977.0, 6700.0, 100 * (1 - 6700 / 6977), 277.0),
        ("latency_p99", 0.198, 0.21, 100 * (0.21 / 0.198 - 1), 0.012),
        ("host_to_device", 4.31, 4.53, 100 * (1 - 4.53 / 4.31), -0.22),
        ("over_bound_share", 0.0, 0.5, 0.5, 0.5),
    ],
)
def test_bare_numbers_have_a_difference_whose_sign_means_worse(
    name: str, base: float, other: float, percent: float, absolute: float
) -> None:
    found = without_samples(METRICS[name], base, other, "no samples")
    assert (found.overhead_percent, found.overhead_absolute) == pytest.approx((percent, absolute))
    assert (found.percent, found.absolute, found.obstacle) == (None, None, "no samples")


@pytest.mark.parametrize("name", ["throughput", "latency_p99"])
@pytest.mark.parametrize(("base", "other"), [(0.0, 1.0), (0.0, 0.0)])
def test_a_base_of_zero_has_no_ratio(name: str, base: float, other: float) -> None:
    found = without_samples(METRICS[name], base, other, "")
    assert found.overhead_percent is None
    assert found.obstacle == "the base is zero, so the ratio is undefined"


def test_nothing_done_on_the_other_side_is_all_lost() -> None:
    assert without_samples(METRICS["throughput"], 5.0, 0.0, "").overhead_percent == 100.0
    assert without_samples(METRICS["latency_p99"], 5.0, 0.0, "").overhead_percent == -100.0
