from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import bootstrap, linregress, ttest_ind

from gputax.stats.pairs import bootstrap_mean_interval, hodges_lehmann, severe_outliers, slope_test


def test_hodges_lehmann_by_hand() -> None:
    # Averages 1, 1.5, 2, 2.5, 3, 4: the median is 2.25.
    assert hodges_lehmann(np.array([4.0, 1.0, 2.0])) == pytest.approx(2.25)
    assert hodges_lehmann(np.array([7.0])) == 7.0


@pytest.mark.parametrize("n", [2, 3, 5, 10, 31, 101, 102, 200])
def test_hodges_lehmann_is_the_median_of_all_averages(n: int) -> None:
    values = np.random.default_rng(n).standard_t(2, n)
    rows, columns = np.triu_indices(n)
    assert hodges_lehmann(values) == pytest.approx(np.median((values[rows] + values[columns]) / 2), abs=1e-9)


def test_one_wild_pair_hardly_moves_hodges_lehmann() -> None:
    values = np.random.default_rng(5).normal(0.03, 0.01, 30)
    wild = values.copy()
    wild[7] = 5.0
    assert abs(hodges_lehmann(wild) - hodges_lehmann(values)) < 0.002


def test_the_bootstrap_is_scipys_bca_and_the_same_each_time() -> None:
    values = np.random.default_rng(6).lognormal(0, 1.2, 40)
    ours = bootstrap_mean_interval(values, resamples=4000, seed=7)
    reference = bootstrap((values,), np.mean, n_resamples=20_000, rng=np.random.default_rng(1)).confidence_interval
    assert ours == pytest.approx((reference.low, reference.high), rel=0.02)
    # BCa reaches further towards the long tail than plain percentiles do.
    assert ours[1] - values.mean() > 1.3 * (values.mean() - ours[0])
    assert ours == bootstrap_mean_interval(values, resamples=4000, seed=7)
    assert ours != bootstrap_mean_interval(values, resamples=4000, seed=8)


def test_a_long_series_is_resampled_by_batches() -> None:
    rng = np.random.default_rng(7)
    values = np.repeat(rng.normal(0, 1, 50), 40)
    low, high = bootstrap_mean_interval(values, resamples=2000, seed=7)
    # 50 independent values, not 2000: the half-width is near 1.96/sqrt(50), not 1.96/sqrt(2000).
    assert 0.2 < (high - low) / 2 < 0.36


def test_equal_values_have_a_bootstrap_without_width() -> None:
    assert bootstrap_mean_interval(np.full(12, 0.03), resamples=100, seed=7) == pytest.approx((0.03, 0.03))
    # Batches of 20 that all have the mean 0.
    alternating = np.tile([0.01, -0.01], 500)
    assert bootstrap_mean_interval(alternating, resamples=100, seed=7) == pytest.approx((0.0, 0.0))


def test_slope_and_p_are_those_of_linear_regression() -> None:
    rng = np.random.default_rng(8)
    x = rng.uniform(0, 60, 25)
    y = 0.01 * x + rng.normal(0, 0.2, 25)
    reference = linregress(x, y)
    assert slope_test(x, y) == pytest.approx((reference.slope, reference.pvalue))


def test_slope_on_two_groups_is_the_t_test() -> None:
    rng = np.random.default_rng(9)
    group = np.array([0.0, 1.0] * 10)
    y = 0.5 * group + rng.normal(0, 1, 20)
    reference = ttest_ind(y[group == 1], y[group == 0])
    difference, p = slope_test(group, y)
    assert difference == pytest.approx(y[group == 1].mean() - y[group == 0].mean())
    assert p == pytest.approx(reference.pvalue)


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        ([1.0, 1.0, 1.0], [1.0, 2.0, 3.0], (0.0, 1.0)),
        ([0.0, 1.0], [0.0, 1.0], (0.0, 1.0)),
        ([0.0, 1.0, 2.0], [0.0, 2.0, 4.0], (2.0, 0.0)),
        ([0.0, 1.0, 2.0], [5.0, 5.0, 5.0], (0.0, 1.0)),
    ],
)
def test_slopes_without_residue_or_spread(x: list[float], y: list[float], expected: tuple[float, float]) -> None:
    assert slope_test(np.array(x), np.array(y)) == expected


def test_only_severe_outliers_are_flagged() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 12.0, 60.0, -40.0])
    assert severe_outliers(values) == (9, 10)
