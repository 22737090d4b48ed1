"""One side's bounds and what two sides differ by, against scipy and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from gputax.stats.series import series_mean
from gputax.stats.spreads import (
    Spread,
    block_size,
    mean_spread,
    percentile_spread,
    share_spread,
    spread_gap,
    spread_ratio,
)

# Too few for blocks, so that ranks are used.
SHORT = 950


def exact(value: float, low: float, high: float) -> Spread:
    return Spread(value, lambda alpha: (low, high))


def percentile(values: np.ndarray, p: float) -> Spread:
    return percentile_spread(values, np.sort(values), p, 1.0)


def test_a_mean_has_the_bounds_of_students_t() -> None:
    values = np.random.default_rng(1).normal(10, 1, 40)
    expected = stats.t.interval(0.95, 39, values.mean(), stats.sem(values))
    spread = mean_spread(values, 2.0)
    assert spread.value == pytest.approx(2 * values.mean())
    assert spread.one_sided(0.025) == pytest.approx([2 * bound for bound in expected])


@pytest.mark.parametrize("p", [0.5, 0.9, 0.99])
def test_a_percentile_of_independent_samples_has_scipys_interval(p: float) -> None:
    # With this seed the batches happen not to differ by more than chance, so that nothing is widened.
    values = np.random.default_rng(17).permutation(SHORT).astype(np.float64) + 1.0
    value = np.sort(values)[int(SHORT * p)]
    assert series_mean((values <= value).astype(np.float64)).inflation <= 1.0
    reference = stats.quantile_test(values, p=p).confidence_interval(0.95)
    assert percentile(values, p).value == value
    # Of numbers from 1 to 950 each is its own rank; scipy may take the neighbour where both keep the risk.
    assert percentile(values, p).one_sided(0.025) == pytest.approx((reference.low, reference.high), abs=1)


def test_a_percentile_has_no_bound_where_the_samples_end() -> None:
    low, high = percentile(np.arange(1.0, 101.0), 0.99).one_sided(0.025)
    assert high == math.inf
    assert low > 90


def test_from_enough_samples_a_percentile_has_the_interval_of_its_blocks() -> None:
    values = np.random.default_rng(7).lognormal(0, 0.3, 10_000)
    logs = np.log([np.sort(block)[100] for block in np.split(values, 50)])
    low, high = percentile(values, 0.5).one_sided(0.025)
    reach = stats.t.ppf(0.975, 49) * stats.sem(logs)
    value = np.sort(values)[5000]
    assert (low, high) == pytest.approx((value * math.exp(-reach), value * math.exp(reach)))


def test_a_small_drift_of_a_sharp_median_does_not_reach_for_the_outliers() -> None:
    # Half a run at 1.000, half at 1.001, and one sample in fifty at 10: the median is known to a few percent.
    values = np.repeat([1.0, 1.001], 600) + np.random.default_rng(8).normal(0, 1e-5, 1200)
    values[::50] = 10.0
    low, high = percentile(values, 0.5).one_sided(0.025)
    assert 0.9 < low < 1.0 < high < 1.1


@pytest.mark.parametrize(("p", "size"), [(0.5, 20), (0.9, 1024), (0.99, 10_592)])
def test_blocks_must_carry_their_percentile(p: float, size: int) -> None:
    assert block_size(p) == size


def test_correlated_samples_widen_the_bounds() -> None:
    rng = np.random.default_rng(2)
    wander = np.repeat(rng.normal(0, 0.05, 100), 100)
    values = 10 * np.exp(wander + rng.normal(0, 0.05, 10_000))
    low, high = percentile(values, 0.5).one_sided(0.025)
    mixed_low, mixed_high = percentile(rng.permutation(values), 0.5).one_sided(0.025)
    assert high - low > 3 * (mixed_high - mixed_low)


def test_a_share_has_the_bounds_of_clopper_and_pearson() -> None:
    hits = np.zeros(100)
    hits[::20] = 1.0
    expected = stats.binomtest(5, 100).proportion_ci(0.95, method="exact")
    assert share_spread(hits).value == 5.0
    assert share_spread(hits).one_sided(0.025) == pytest.approx((100 * expected.low, 100 * expected.high))


def test_none_of_700_is_not_certainly_none() -> None:
    low, high = share_spread(np.zeros(700)).one_sided(0.05)
    assert low == 0.0
    assert high == pytest.approx(100 * (1 - 0.05 ** (1 / 700)))
    assert share_spread(np.ones(700)).one_sided(0.05)[1] == 100.0


def test_two_sides_are_joined_by_mover() -> None:
    gap = spread_gap(exact(10, 9, 12), exact(15, 14, 18), "ms")
    assert gap.value == 5
    # Down: sqrt((15-14)^2 + (12-10)^2); up: sqrt((18-15)^2 + (10-9)^2).
    assert gap.one_sided(0.05) == pytest.approx((5 - math.sqrt(5), 5 + math.sqrt(10)))


def test_a_ratio_is_a_gap_of_logarithms() -> None:
    ratio = spread_ratio(exact(10, 9, 12), exact(15, 14, 18))
    down = math.hypot(math.log(15 / 14), math.log(12 / 10))
    up = math.hypot(math.log(18 / 15), math.log(10 / 9))
    assert ratio.value == pytest.approx(50)
    assert ratio.one_sided(0.05) == pytest.approx((100 * (1.5 * math.exp(-down) - 1), 100 * (1.5 * math.exp(up) - 1)))


def test_what_one_side_cannot_tell_the_ratio_cannot_either() -> None:
    assert spread_ratio(exact(10, 0, math.inf), exact(15, 14, 18)).one_sided(0.05) == (-100.0, math.inf)
    assert spread_ratio(exact(10, 9, 12), exact(15, 14, math.inf)).one_sided(0.05)[1] == math.inf
    assert spread_ratio(exact(10, 9, 12), exact(15, 14, math.inf)).one_sided(0.05)[0] > -100.0
    assert spread_gap(exact(10, 9, math.inf), exact(15, 14, 18), "ms").one_sided(0.05)[0] == -math.inf


@pytest.mark.parametrize("p", [0.5, 0.9])
def test_the_truth_is_inside_even_when_the_machine_drifts(p: float) -> None:
    """Equal sides, noise that wanders over 1 % of the run: 95 % of 200 runs give or take 3 standard errors."""
    rng = np.random.default_rng(3)
    steps = 200
    held = 0
    for _ in range(200):
        sides = []
        for _ in range(2):
            wander = np.empty(steps)
            level = rng.normal(0, 0.05)
            for step in range(steps):
                level = 0.6 * level + rng.normal(0, 0.05 * 0.8)
                wander[step] = level
            sides.append(percentile(np.exp(np.repeat(wander, 10) + rng.normal(0, 0.1, 10 * steps)), p))
        low, high = spread_ratio(sides[0], sides[1]).one_sided(0.025)
        held += low <= 0.0 <= high
    assert held / 200 >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / 200)
    assert held / 200 <= 0.995
