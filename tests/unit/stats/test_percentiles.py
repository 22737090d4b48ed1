from __future__ import annotations

import time

import numpy as np
import pytest
from scipy.stats import binom

from gputax.errors import ResultsError, UsageError
from gputax.stats.estimates import binomial_quantile
from gputax.stats.percentiles import floor_for, percentile, percentile_interval_ns, percentile_table


@pytest.mark.parametrize(("p", "floor"), [(0.5, 10), (0.9, 64), (0.95, 130), (0.97, 219), (0.99, 662), (0.999, 6636)])
def test_floors_are_those_of_early_stopping(p: float, floor: int) -> None:
    assert floor_for(p) == floor
    if p > 0.5:
        assert binom.cdf(1, floor, 1 - p) <= 0.01 < binom.cdf(1, floor - 1, 1 - p)


def test_a_low_percentile_needs_as_much_as_its_mirror() -> None:
    assert floor_for(0.1) == floor_for(0.9)
    assert floor_for(0.51) >= floor_for(0.5)


@pytest.mark.parametrize("p", [0.0, 1.0, 99.0, -0.1, float("nan")])
def test_a_percentile_outside_0_and_1_is_refused(p: float) -> None:
    with pytest.raises(UsageError, match="is not between 0 and 1"):
        percentile(np.ones(1000), p)


@pytest.mark.parametrize(("n", "p"), [(100, 0.9), (1000, 0.99), (1001, 0.99), (777, 0.97), (11, 0.5), (10, 0.5)])
def test_loadgens_rank_without_interpolation(n: int, p: float) -> None:
    shuffled = np.random.default_rng(1).permutation(n)
    assert percentile(shuffled, p) == int(n * p)


@pytest.mark.parametrize("p", [0.5, 0.9, 0.95, 0.97, 0.99, 0.999])
def test_below_the_floor_there_is_no_percentile(p: float) -> None:
    floor = floor_for(p)
    assert percentile(np.ones(floor), p) == 1.0
    assert percentile(np.ones(floor - 1), p) is None


def test_the_table_agrees_with_single_percentiles_and_numpy() -> None:
    latency = np.random.default_rng(2).lognormal(15, 0.3, 700)
    table = percentile_table(latency)
    assert (table.count, table.min_ns, table.max_ns) == (700, latency.min(), latency.max())
    assert table.mean_ns == pytest.approx(latency.mean())
    assert [row.value_ns for row in table.rows] == [percentile(latency, row.p) for row in table.rows]
    assert table.rows[-1].value_ns is None
    assert table.rows[-1].floor == 6636


@pytest.mark.parametrize("probability", [0.005, 0.025, 0.5, 0.975, 0.995])
@pytest.mark.parametrize("chance", [0.5, 0.9, 0.99, 0.999])
def test_binomial_quantiles_are_scipys(probability: float, chance: float) -> None:
    for trials in (1, 2, 10, 64, 367, 368, 1000, 100_000):
        assert binomial_quantile(probability, trials, chance) == int(binom.ppf(probability, trials, chance))


@pytest.mark.parametrize(("p", "least"), [(0.9, 36), (0.99, 368), (0.999, 3688)])
def test_a_two_sided_interval_exists_from_a_known_count(p: float, least: int) -> None:
    assert percentile_interval_ns(np.arange(least, dtype=np.float64), p) is not None
    assert percentile_interval_ns(np.arange(least - 1, dtype=np.float64), p) is None


def test_the_p99_of_a_thousand_spans_what_the_binomial_says() -> None:
    interval = percentile_interval_ns(np.arange(1, 1001, dtype=np.float64), 0.99)
    assert interval == (983.0, 997.0)
    # P[983 <= K < 997] for K ~ Binomial(1000, 0.99): what the two ranks enclose.
    assert binom.cdf(996, 1000, 0.99) - binom.cdf(982, 1000, 0.99) >= 0.95


def test_the_interval_covers_the_true_percentile_of_any_shape() -> None:
    rng = np.random.default_rng(3)
    samples = np.sort(rng.lognormal(0, 2, (2000, 400)), axis=1)
    truth = float(np.exp(2 * 1.2815515655446004))
    intervals = [percentile_interval_ns(row, 0.9) for row in samples]
    covered = np.mean([low <= truth <= high for low, high in filter(None, intervals)])
    assert 0.94 <= covered <= 0.985


def test_nan_latency_is_an_error() -> None:
    with pytest.raises(ResultsError, match="latency: sample 2 of 3 is nan"):
        percentile_table([1.0, float("nan"), 2.0])


def test_a_million_samples_take_well_below_a_second() -> None:
    latency = np.random.default_rng(4).lognormal(15, 0.3, 1_000_000)
    percentile_table(latency[:1000])
    start = time.process_time()
    percentile_table(latency)
    assert time.process_time() - start < 0.5
