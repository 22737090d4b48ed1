from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from gputax.errors import ResultsError
from gputax.stats.pairs import PairedEstimate, paired_estimate


def noisy(pairs: int, overhead: float = 0.03, sd: float = 0.01, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    machine = np.exp(rng.normal(0, 0.3, pairs))
    return machine, machine * (1 + overhead) * np.exp(rng.normal(0, sd, pairs))


def test_by_hand() -> None:
    logs = np.array([0.01, 0.03, 0.02, 0.04])
    estimate = paired_estimate(np.full(4, 7.0), 7.0 * np.exp(logs))
    # Mean 0.025, sd 0.012910, standard error 0.006455; t is 3.1824 (two-sided) and 2.3534 (one-sided) for 3.
    assert estimate.overhead_percent == pytest.approx(100 * math.expm1(0.025))
    assert estimate.ci95_percent == pytest.approx((0.4467, 4.6596), abs=2e-4)
    assert estimate.one_sided95_percent == pytest.approx((0.9857, 4.1010), abs=2e-4)
    assert estimate.sd_percent == pytest.approx(1.2910, abs=1e-4)
    assert estimate.pairs == 4
    assert estimate.bootstrap_ci95_percent is None
    assert estimate.one_sided(0.05) == estimate.one_sided95_percent


def test_bounds_are_asymmetric_in_percent_and_symmetric_in_logs() -> None:
    a, b = noisy(20, overhead=0.5, sd=0.2)
    estimate = paired_estimate(a, b)
    low, high = (math.log1p(bound / 100) for bound in estimate.ci95_percent)
    middle = math.log1p(estimate.overhead_percent / 100)
    assert high - middle == pytest.approx(middle - low)
    above = estimate.ci95_percent[1] - estimate.overhead_percent
    assert above > 1.05 * (estimate.overhead_percent - estimate.ci95_percent[0])
    assert estimate.half_width_percent == pytest.approx(50 * (high - low))


def test_throughput_and_latency_agree() -> None:
    a, b = noisy(20)
    by_latency, by_throughput = paired_estimate(a, b), paired_estimate(1 / a, 1 / b, better="higher")
    assert by_throughput.ci95_percent == pytest.approx(by_latency.ci95_percent)
    assert by_latency.overhead_percent == pytest.approx(3, abs=1)


def test_what_the_two_halves_of_a_pair_share_cancels() -> None:
    a, b = noisy(30)
    assert a.std() / a.mean() > 0.2
    assert paired_estimate(a, b).half_width_percent < 0.6


def test_three_methods_agree_on_clean_pairs() -> None:
    a, b = noisy(40)
    estimate = paired_estimate(a, b)
    assert estimate.notices == ()
    assert estimate.bootstrap_ci95_percent == pytest.approx(estimate.ci95_percent, abs=0.05)
    assert estimate.hodges_lehmann_percent == pytest.approx(estimate.overhead_percent, abs=0.1)


def test_an_order_effect_is_measured_and_said() -> None:
    a, b = noisy(40, sd=0.005)
    b_first = np.arange(40) % 4 >= 2
    estimate = paired_estimate(a, b * np.where(b_first, 1.0, 1.04), b_first=b_first)
    assert estimate.order_effect is not None
    assert estimate.order_effect.percent == pytest.approx(4, abs=0.5)
    assert (estimate.order_effect.pairs_b_first, estimate.order_effect.pairs_b_second) == (20, 20)
    assert estimate.order_effect.p < 1e-6
    assert any("order effect: the overhead is +" in notice for notice in estimate.notices)


def test_a_random_order_without_effect_is_silent() -> None:
    a, b = noisy(40)
    estimate = paired_estimate(a, b, b_first=np.random.default_rng(2).random(40) < 0.5)
    assert estimate.order_effect is not None
    assert estimate.order_effect.p > 0.01
    assert estimate.notices == ()


def test_one_order_throughout_is_said() -> None:
    a, b = noisy(20)
    estimate = paired_estimate(a, b, b_first=np.zeros(20))
    assert estimate.order_effect is None
    assert any("ran in one order" in notice for notice in estimate.notices)


def test_drift_of_the_overhead_is_measured_over_the_run() -> None:
    a, b = noisy(40, sd=0.005)
    time_s = np.linspace(100, 160, 40)
    estimate = paired_estimate(a, b * (1 + 0.05 * (time_s - 100) / 60), time_s=time_s)
    assert estimate.drift is not None
    assert estimate.drift.percent == pytest.approx(5, abs=1)
    assert any(notice.startswith("drift:") for notice in estimate.notices)
    unmoved = paired_estimate(a, b).drift
    assert unmoved is not None
    assert unmoved.p > 0.01


def test_outliers_are_named_and_kept() -> None:
    a, b = noisy(20)
    b[[3, 11]] *= 3
    estimate = paired_estimate(a, b)
    assert estimate.outlier_pairs == (3, 11)
    assert any("2 pairs are far from the others (number 4, 12)" in notice for notice in estimate.notices)
    assert estimate.overhead_percent > 10
    assert estimate.hodges_lehmann_percent < 5


def test_a_mean_that_few_pairs_carry_is_said() -> None:
    a, b = noisy(100)
    b[:30] *= np.linspace(1.2, 3, 30)
    b = np.random.default_rng(3).permutation(b / a)
    estimate = paired_estimate(np.ones(100), b)
    assert any("Hodges-Lehmann disagree" in notice for notice in estimate.notices)


def test_correlated_pairs_count_for_fewer() -> None:
    rng = np.random.default_rng(4)
    wander = np.repeat(rng.normal(0, 0.02, 12), 5)
    estimate = paired_estimate(np.ones(60), np.exp(0.03 + wander + rng.normal(0, 0.002, 60)))
    assert estimate.lag1 > 0.6
    assert estimate.effective_pairs < 20
    assert any("neighbouring pairs are correlated" in notice for notice in estimate.notices)


def test_alternating_pairs_point_at_the_waiting_side() -> None:
    logs = 0.03 + 0.04 * (np.arange(30) % 2) + np.random.default_rng(5).normal(0, 0.002, 30)
    estimate = paired_estimate(np.ones(30), np.exp(logs))
    assert estimate.lag1 < -0.9
    assert estimate.inflation == pytest.approx(1.0)
    assert any("alternate" in notice for notice in estimate.notices)


def test_exact_pairs_have_no_width_and_say_so() -> None:
    a = np.linspace(1, 2, 12)
    estimate = paired_estimate(a, a * 1.03)
    assert estimate.overhead_percent == pytest.approx(3)
    assert estimate.ci95_percent == pytest.approx((3, 3))
    assert estimate.bootstrap_ci95_percent == pytest.approx((3, 3))
    assert any("all pairs are equal" in notice for notice in estimate.notices)


def test_two_pairs_are_enough_for_an_interval_and_one_is_not() -> None:
    assert paired_estimate([1.0, 1.0], [1.0, 1.1]).ci95_percent[1] > 50
    with pytest.raises(ResultsError, match="one value has no spread"):
        paired_estimate([1.0], [1.1])


def test_absurd_spread_ends_in_infinity_and_not_in_a_crash() -> None:
    estimate = paired_estimate([1.0, 1e-200], [1.0, 1e200])
    assert estimate.ci95_percent == pytest.approx((-100.0, math.inf))


def test_times_and_orders_must_fit_the_pairs() -> None:
    with pytest.raises(ResultsError, match="the order must be given"):
        paired_estimate([1.0, 2.0], [1.0, 2.0], b_first=[True])
    with pytest.raises(ResultsError, match="the time must be given"):
        paired_estimate([1.0, 2.0], [1.0, 2.0], time_s=[0.0, math.nan])


def test_ten_thousand_single_request_pairs_give_a_full_estimate() -> None:
    a, b = noisy(10_000, sd=0.1)
    estimate = paired_estimate(a, b)
    assert estimate.ci95_percent[0] < 3 < estimate.ci95_percent[1]
    assert estimate.half_width_percent == pytest.approx(0.2, abs=0.06)


def test_an_estimate_is_frozen() -> None:
    estimate: PairedEstimate = paired_estimate([1.0, 2.0], [1.0, 2.2])
    with pytest.raises(dataclasses.FrozenInstanceError):
        estimate.pairs = 3  # type: ignore[misc]
