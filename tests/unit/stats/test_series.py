from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import t as student

from gputax.errors import ResultsError
from gputax.stats.series import batch_starts, lag1_of, series_mean


def test_independent_values_have_the_textbook_interval() -> None:
    values = np.random.default_rng(1).normal(5, 2, 40)
    mean = series_mean(values)
    assert mean.inflation == pytest.approx(1.0)
    assert mean.effective_count == pytest.approx(40)
    expected = student.interval(0.95, 39, values.mean(), values.std(ddof=1) / math.sqrt(40))
    assert mean.one_sided(0.025) == pytest.approx(expected)


def test_lag1_by_hand() -> None:
    # Centred -1.5, -0.5, 0.5, 1.5: products 0.75 - 0.25 + 0.75 = 1.25 over squares 5.
    assert lag1_of(np.array([1.0, 2.0, 3.0, 4.0])) == pytest.approx(0.25)
    assert lag1_of(np.ones(5)) == 0.0


def test_correlated_neighbours_widen_the_interval_as_the_formula_says() -> None:
    values = np.repeat([1.0, -1.0, 1.0, -1.0], 8)
    mean = series_mean(values)
    # 28 equal neighbours and 3 opposite ones over 32 squares; then the correction for a short series.
    raw = (28 - 3) / 32
    r = raw + (1 + 4 * raw) / 32
    assert mean.lag1 == pytest.approx(raw)
    assert mean.inflation == pytest.approx(math.sqrt((1 + r) / (1 - r)))
    assert mean.effective_count == pytest.approx(32 * (1 - r) / (1 + r))
    assert mean.degrees_of_freedom == pytest.approx(max(1.0, mean.effective_count - 1))


def test_a_correlation_within_chance_widens_nothing() -> None:
    values = np.random.default_rng(8).normal(0, 1, 30)
    assert abs(series_mean(values).lag1) < 2 / math.sqrt(30)
    assert series_mean(values).inflation == pytest.approx(1.0)


def test_a_long_series_is_judged_by_its_batches() -> None:
    values = np.random.default_rng(3).normal(0, 1, 5000).cumsum()
    values -= np.linspace(0, values[-1], 5000)
    batches = values.reshape(50, 100).mean(axis=1)
    mean = series_mean(values)
    assert mean.mean == pytest.approx(values.mean())
    assert mean.se >= batches.std(ddof=1) / math.sqrt(50) * 0.999
    assert mean.inflation > 5
    assert mean.effective_count < 5000 / 25


def test_batches_are_nearly_equal_and_short_series_are_left_alone() -> None:
    assert batch_starts(100).tolist() == list(range(100))
    sizes = np.diff(np.append(batch_starts(1234), 1234))
    assert len(sizes) == 50
    assert sizes.sum() == 1234
    assert sizes.max() - sizes.min() <= 1


def test_no_spread_beyond_rounding_is_no_spread() -> None:
    mean = series_mean(np.array([0.1 + 0.2, 0.3, 0.3, 0.3]))
    assert (mean.sd, mean.se, mean.inflation) == (0.0, 0.0, 1.0)
    assert mean.one_sided(0.05) == (mean.mean, mean.mean)


def test_one_value_is_an_error() -> None:
    with pytest.raises(ResultsError, match="one value has no spread"):
        series_mean(np.array([1.0]))
