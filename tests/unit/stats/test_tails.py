from __future__ import annotations

import time

import numpy as np
import pytest

from gputax.errors import ResultsError
from gputax.stats import tails
from gputax.stats.tails import refusal, tail_estimate


def blocks(pairs: int, requests: int, scale: float = 1.0, seed: int = 1) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [scale * 1e6 * rng.lognormal(rng.normal(0, 0.05), 0.3, requests) for _ in range(pairs)]


def test_the_value_is_the_pooled_percentile_by_loadgens_rank() -> None:
    a, b = blocks(12, 100, seed=1), blocks(12, 100, 1.2, seed=2)
    estimate = tail_estimate(a, b)
    a_p99, b_p99 = (np.sort(np.concatenate(side))[int(1200 * 0.99)] for side in (a, b))
    assert (estimate.a_ms, estimate.b_ms) == (a_p99 / 1e6, b_p99 / 1e6)
    assert estimate.overhead.value == pytest.approx(100 * (b_p99 / a_p99 - 1))
    assert estimate.difference.value == pytest.approx((b_p99 - a_p99) / 1e6)
    assert estimate.overhead.ci95[0] < estimate.overhead.value < estimate.overhead.ci95[1]


@pytest.mark.parametrize("p", [0.9, 0.99])
def test_replicates_are_those_of_a_plain_cluster_bootstrap(p: float) -> None:
    a, b = blocks(15, 60, seed=3), blocks(15, 60, 1.1, seed=4)
    ours = tail_estimate(a, b, p, resamples=300, seed=5)
    weights = np.random.default_rng(5).multinomial(15, np.full(15, 1 / 15), size=300)
    plain = []
    for row in weights:
        drawn = np.repeat(np.arange(15), row)
        pools = [np.sort(np.concatenate([side[i] for i in drawn])) for side in (a, b)]
        low, high = (pool[int(pool.size * p)] for pool in pools)
        plain.append((high - low) / 1e6)
    assert ours.difference.replicates == pytest.approx(np.sort(plain))


def test_ties_do_not_confuse_the_ranks() -> None:
    rng = np.random.default_rng(6)
    a = [rng.integers(1, 5, 100).astype(float) for _ in range(12)]
    estimate = tail_estimate(a, a, 0.9, resamples=200)
    assert estimate.difference.ci95 == (0.0, 0.0)
    assert estimate.a_ms == 4e-6


def test_few_clusters_widen_the_bounds() -> None:
    replicates = np.sort(np.random.default_rng(8).normal(0, 1, 200_000))
    few, many = (tails.ResampledEstimate(0.0, "%", clusters, replicates).ci95 for clusters in (10, 100_000))
    assert many == pytest.approx((-1.96, 1.96), abs=0.03)
    # t(0.975, 9) = 2.262, times sqrt(10/9).
    assert few == pytest.approx((-2.384, 2.384), abs=0.03)


def test_pairs_are_drawn_whole() -> None:
    rng = np.random.default_rng(9)
    speed = np.exp(rng.normal(0, 0.5, 30))
    a = [1e6 * s * rng.lognormal(0, 0.01, 50) for s in speed]
    b = [1.1 * block for block in a]
    # B is A times 1.1 in every pair, so every replicate of the ratio is 10 %, however the pairs differ.
    assert tail_estimate(a, b).overhead.ci95 == pytest.approx((10, 10))
    assert tail_estimate(a, b).difference.ci95[1] > 1.5 * tail_estimate(a, b).difference.ci95[0]


def test_below_the_floors_it_is_refused() -> None:
    assert refusal(blocks(12, 60), blocks(12, 60)) is None
    assert refusal(blocks(9, 1000), blocks(9, 1000)) == "p99 needs at least 10 pairs, there are 9"
    too_few = "p99 needs at least 662 requests on each side, B has 660"
    assert refusal(blocks(11, 61), blocks(11, 60)) == too_few
    assert refusal(blocks(11, 60), blocks(11, 60), 0.9) is None
    assert refusal(blocks(11, 60), blocks(10, 66)) == "A has 11 blocks and B has 10: they are not pairs"
    with pytest.raises(ResultsError, match=too_few):
        tail_estimate(blocks(11, 61), blocks(11, 60))


def test_a_bad_latency_is_named_with_its_pair() -> None:
    a = blocks(12, 60)
    a[4][7] = np.nan
    with pytest.raises(ResultsError, match="A, pair 5: sample 8 of 60 is nan"):
        tail_estimate(a, blocks(12, 60))


def test_many_small_pairs_become_clusters_of_neighbours() -> None:
    estimate = tail_estimate(blocks(400, 3, seed=1), blocks(400, 3, seed=2))
    assert estimate.pairs == 400
    assert estimate.overhead.clusters == 50


def test_two_million_samples_take_a_second_at_most() -> None:
    a, b = blocks(40, 25_000, seed=1), blocks(40, 25_000, seed=2)
    start = time.process_time()
    tail_estimate(a, b)
    assert time.process_time() - start < 1
