from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import ttest_ind

from gputax.errors import ResultsError
from gputax.stats.spreads import fieller


def two_runs(count: int = 30, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.lognormal(0, 0.02, count), rng.lognormal(0.03, 0.05, count + 7)


def test_fieller_by_hand() -> None:
    a, b = [9.0, 10.0, 11.0], [19.0, 20.0, 21.0]
    # Means 10 and 20; both half-widths are 4.30265 * 1/sqrt(3) = 2.48414, squared 6.17094.
    h2 = 4.3026527**2 / 3
    root = math.sqrt(200**2 - (100 - h2) * (400 - h2))
    expected = (100 * ((200 - root) / (100 - h2) - 1), 100 * ((200 + root) / (100 - h2) - 1))
    assert fieller(a, b).overhead_percent == pytest.approx(100)
    assert fieller(a, b).ci95_percent == pytest.approx(expected, rel=1e-6)


def test_fieller_bounds_solve_its_equation() -> None:
    a, b = two_runs()
    estimate = fieller(a, b)
    for bound in estimate.one_sided(0.05):
        ratio = 1 + bound / 100
        left = (estimate.other.mean - ratio * estimate.base.mean) ** 2
        right = estimate.other.half_width(0.05) ** 2 + (ratio * estimate.base.half_width(0.05)) ** 2
        assert left == pytest.approx(right)


def test_fieller_has_no_bounds_when_the_base_may_be_zero() -> None:
    estimate = fieller([0.1, 10.0], [1.0, 1.1])
    assert estimate.ci95_percent == (-100.0, math.inf)
    assert any("too noisy" in notice for notice in estimate.notices)


def test_fieller_never_goes_below_minus_100_percent() -> None:
    assert fieller([10.0, 10.1, 10.2], [0.1, 5.0]).ci95_percent[0] == -100.0


def test_higher_is_better_swaps_the_ratio() -> None:
    a, b = two_runs()
    assert fieller(a, b, "higher").ci95_percent == fieller(b, a, "lower").ci95_percent


def test_correlated_requests_do_not_pass_for_replicates() -> None:
    rng = np.random.default_rng(3)
    wander = np.repeat(rng.normal(0, 0.05, 100), 100)
    a = np.exp(wander + rng.normal(0, 0.05, 10_000))
    b = np.exp(rng.permutation(wander.reshape(100, 100)).ravel() + rng.normal(0, 0.05, 10_000))
    naive = ttest_ind(np.log(b), np.log(a), equal_var=False).confidence_interval(0.95)
    low, high = fieller(a, b).ci95_percent
    assert high - low > 4 * 100 * (naive.high - naive.low)
    assert any("correlated" in notice for notice in fieller(a, b).notices)


def test_exact_runs_have_no_width() -> None:
    assert fieller([1.0, 1.0], [1.1, 1.1]).ci95_percent == pytest.approx((10, 10))


def test_one_value_has_no_interval() -> None:
    with pytest.raises(ResultsError, match="one value has no spread"):
        fieller([1.0], [1.0, 2.0])


def test_a_base_of_zero_is_an_error() -> None:
    with pytest.raises(ResultsError, match="A: sample 1 of 2 is 0"):
        fieller([0.0, 1.0], [1.0, 2.0])
