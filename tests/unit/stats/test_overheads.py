"""The overhead from pairs inside restarts: known answers, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gputax.errors import ResultsError
from gputax.stats.estimates import lost_percent_of_log
from gputax.stats.overheads import Blocks, Level, furthest, mean_overhead, percentile_overhead, refusal, widest


def blocks(pairs: int, restarts: int, ratio: float = 1.0, runs: int = 1, seed: int = 1) -> Blocks:
    rng = np.random.default_rng(seed)
    a, b = np.exp(0.02 * rng.normal(size=(2, pairs, runs)))
    return Blocks.of(list(1e6 * a), list(1e6 * b * ratio), np.arange(pairs) * restarts // pairs)


def test_the_mean_is_the_ratio_of_the_columns() -> None:
    found = mean_overhead(Blocks.of([[1.0, 3.0], [2.0]], [[2.0, 2.0], [8.0]], [0, 1]))
    assert (found.a_ns, found.b_ns) == (2.0, 4.0)
    assert found.ratio.value == pytest.approx(100.0)
    assert found.difference.value == pytest.approx(2e-6)


def test_a_percentile_is_that_of_the_pooled_requests() -> None:
    given = blocks(100, 5, 1.1, runs=4)
    found = percentile_overhead(given, 0.5)
    assert found.a_ns == np.sort(given.a.latency_ns)[200]
    assert found.ratio.value == pytest.approx(100 * (found.b_ns / found.a_ns - 1))
    low, high = found.ratio.one_sided(0.025)
    assert low < 10.0 < high


def test_slots_of_different_lengths_give_the_same_mean() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.lognormal(0, 0.5, size=(2, 120))
    values = set()
    for runs in (1, 4, 12):
        given = Blocks.of(list(a.reshape(-1, runs)), list(b.reshape(-1, runs)), np.zeros(120 // runs))
        values.add(round(mean_overhead(given).ratio.value, 9))
    assert len(values) == 1


def test_restarts_that_differ_widen_the_interval_to_that_of_their_means() -> None:
    rng = np.random.default_rng(3)
    steps = np.exp(0.05 * rng.normal(size=8))
    a = np.exp(0.001 * rng.normal(size=160))
    b = np.exp(0.001 * rng.normal(size=160)) * np.repeat(steps, 20)
    found = mean_overhead(Blocks.of(list(a[:, None]), list(b[:, None]), np.repeat(np.arange(8), 20)))
    logs = np.log(steps)
    expected = 2.365 * logs.std(ddof=1) / math.sqrt(8)
    assert found.ratio.half_width(0.025) == pytest.approx(expected, rel=0.05)
    pooled = percentile_overhead(Blocks.of(list(a[:, None]), list(b[:, None]), np.zeros(160)), 0.5)
    assert found.restarts == 8
    assert pooled.restarts == 1


def test_one_restart_still_has_the_noise_of_its_pairs() -> None:
    found = mean_overhead(blocks(40, 1))
    assert found.ratio.half_width(0.025) == pytest.approx(2.02 * 0.02 * math.sqrt(2 / 40), rel=0.3)


def test_a_long_tail_moves_only_the_bound_on_its_side() -> None:
    plain, skewed = Level(1.0, 30.0), Level(1.0, 30.0, skew=0.1)
    assert skewed.reach(0.05)[0] == plain.reach(0.05)[0]
    assert skewed.reach(0.05)[1] > plain.reach(0.05)[1]
    assert Level(0.0, 5.0).reach(0.05) == (0.0, 0.0)
    assert widest([plain, Level(0.1, 2.0)])(0.05) == plain.reach(0.05)
    assert furthest([lambda alpha: (1.0, 5.0), lambda alpha: (2.0, 3.0)])(0.05) == (2.0, 5.0)


def test_a_tail_beyond_its_last_requests_has_no_upper_bound() -> None:
    found = percentile_overhead(blocks(100, 6, runs=7), 0.99)
    assert found.ratio.one_sided(0.0005)[1] == math.inf


def test_throughput_is_shown_as_what_is_lost() -> None:
    found = mean_overhead(blocks(60, 6, 1 / 0.95), lost_percent_of_log)
    assert found.ratio.value == pytest.approx(5.0, abs=0.6)
    assert found.ratio.value == pytest.approx(100 * (1 - found.a_ns / found.b_ns))


def test_too_few_pairs_or_requests_are_refused() -> None:
    assert refusal(blocks(4, 3), 0.5) == "p50 needs at least 5 pairs, there are 4"
    assert refusal(blocks(40, 5), 0.9) == "p90 needs at least 64 requests on each side, A has 40"
    assert refusal(blocks(40, 5, runs=2), 0.9) is None
    with pytest.raises(ResultsError, match="p99 needs at least 662"):
        percentile_overhead(blocks(40, 5), 0.99)
    with pytest.raises(ResultsError, match="at least 2 pairs"):
        mean_overhead(blocks(1, 1))
    # fewer pairs than groups of neighbours
    assert math.isfinite(percentile_overhead(blocks(12, 2, runs=2), 0.5).ratio.half_width(0.025))


def test_bad_values_are_named() -> None:
    with pytest.raises(ResultsError, match="A: sample 2 of 2 is 0"):
        Blocks.of([[1.0, 0.0]], [[1.0, 1.0]], [0])
    with pytest.raises(ResultsError, match="pair 2 of 2 has no request"):
        Blocks.of([[1.0], []], [[1.0], [1.0]], [0, 0])
    with pytest.raises(ResultsError, match="A has 1 blocks and B 2"):
        Blocks.of([[1.0]], [[1.0], [1.0]], [0])
