from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import f_oneway
from scipy.stats import t as student

from gputax.errors import ResultsError
from gputax.stats.levels import restart_estimate
from gputax.stats.pairs import paired_estimate


def nested(between: float, restarts: int = 6, pairs: int = 20) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    label = np.repeat(np.arange(restarts), pairs)
    return np.exp(0.03 + rng.normal(0, between, restarts)[label] + rng.normal(0, 0.01, label.size)), label


def test_restarts_are_the_replicates() -> None:
    b, restart = nested(0.02)
    means = np.log(b).reshape(6, 20).mean(axis=1)
    low, high = student.interval(0.95, 5, means.mean(), means.std(ddof=1) / math.sqrt(6))
    estimate = restart_estimate(np.ones(120), b, restart)
    assert estimate.ci95_percent == pytest.approx((100 * math.expm1(low), 100 * math.expm1(high)))
    assert (estimate.restarts, estimate.pairs) == (6, 120)
    assert estimate.one_sided(0.05) == estimate.one_sided95_percent


def test_restarts_that_differ_are_found_and_widen_the_interval() -> None:
    b, restart = nested(0.02)
    estimate = restart_estimate(np.ones(120), b, restart)
    assert estimate.p == pytest.approx(f_oneway(*np.log(b).reshape(6, 20)).pvalue)
    assert estimate.p < 1e-6
    assert estimate.within_sd_percent == pytest.approx(1, abs=0.15)
    logs = np.log(b).reshape(6, 20)
    added = logs.mean(axis=1).var(ddof=1) - logs.var(axis=1, ddof=1).mean() / 20
    assert estimate.between_sd_percent == pytest.approx(100 * math.sqrt(added))
    shuffled = np.random.default_rng(2).permutation(b)
    by_pairs = paired_estimate(np.ones(120), shuffled).ci95_percent
    assert estimate.ci95_percent[1] - estimate.ci95_percent[0] > 2 * (by_pairs[1] - by_pairs[0])


def test_restarts_that_do_not_differ_add_nothing() -> None:
    b, restart = nested(0.0)
    estimate = restart_estimate(np.ones(120), b, restart)
    assert estimate.p > 0.05
    assert estimate.between_sd_percent < 0.3


def test_one_restart_has_no_spread_between_restarts() -> None:
    with pytest.raises(ResultsError, match="1 restart"):
        restart_estimate([1.0, 1.0], [1.0, 1.1], [0, 0])


def test_one_pair_per_restart_still_gives_an_interval() -> None:
    estimate = restart_estimate([1.0, 1.0, 1.0], [1.0, 1.1, 1.05], [0, 1, 2])
    assert estimate.ci95_percent == pytest.approx(paired_estimate([1.0] * 3, [1.0, 1.1, 1.05]).ci95_percent)
