from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student

from gputax.errors import UsageError
from gputax.stats.estimates import Unit
from gputax.stats.pairs import PairedEstimate, paired_estimate
from gputax.stats.verdicts import (
    Claim,
    Verdict,
    differs,
    judge,
    judge_absolute,
    judge_all,
    not_comparable,
    pairs_needed,
    pairs_to_clear,
)


@dataclass(frozen=True)
class Normal:
    """An estimate with a known error, so that p values can be written down."""

    value: float
    se: float = 1.0
    unit: Unit = "%"

    def one_sided(self, alpha: float) -> tuple[float, float]:
        reach = float(norm.ppf(1 - alpha)) * self.se
        return self.value - reach, self.value + reach


def duet(overhead: float, pairs: int = 30, sd: float = 0.01) -> PairedEstimate:
    """Return an estimate whose mean and standard deviation are exactly these."""
    shape = np.random.default_rng(1).normal(0, 1, pairs)
    shape = (shape - shape.mean()) / shape.std(ddof=1)
    return paired_estimate(np.ones(pairs), np.exp(math.log1p(overhead) + sd * shape))


@pytest.mark.parametrize(
    ("value", "verdict"),
    # The one-sided 95 % bounds are 1.645 away, the two-sided ones would be 1.96 away.
    [(3.3, "pass"), (3.4, "inconclusive"), (5.0, "inconclusive"), (6.6, "inconclusive"), (6.7, "fail")],
)
def test_a_verdict_needs_the_whole_one_sided_bound(value: float, verdict: Verdict) -> None:
    assert judge(Normal(value), 5.0).verdict == verdict


def test_on_the_budget_is_neither() -> None:
    assert judge(Normal(5.0, se=0.0), 5.0).verdict == "inconclusive"


def test_a_duet_of_3_2_percent_passes_5_and_6_percent_fails() -> None:
    passed, failed = judge(duet(0.032), 5), judge(duet(0.06), 5)
    assert (passed.verdict, failed.verdict) == ("pass", "fail")
    assert passed.pairs_needed is None
    assert passed.reason == "upper bound 3.52 % is below the budget of 5 % (one-sided 95 %)"
    assert failed.reason == "lower bound 5.67 % is above the budget of 5 % (one-sided 95 %)"


def test_inconclusive_says_how_many_pairs_in_all() -> None:
    judged = judge(duet(0.032, pairs=5, sd=0.02), 5)
    assert judged.verdict == "inconclusive"
    assert judged.pairs_needed == 13
    assert "the budget of 5 % is between" in judged.reason


def test_without_spread_is_never_a_pass() -> None:
    judged = judge(Normal(-50.0, se=math.inf), 5)
    assert judged.verdict == "inconclusive"
    assert judged.pairs_needed is None


def test_nan_bounds_decide_nothing() -> None:
    assert judge(Normal(math.nan), 5).verdict == "inconclusive"


@pytest.mark.parametrize("budget", [math.nan, math.inf, -100.0])
def test_a_budget_must_be_a_number(budget: float) -> None:
    with pytest.raises(UsageError, match="is not a budget"):
        judge(Normal(1.0), budget)


def test_units_do_not_mix() -> None:
    assert judge_absolute(Normal(0.1, unit="ms"), 2.0).verdict == "pass"
    assert judge_absolute(Normal(9.0, unit="ms"), 2.0).verdict == "fail"
    with pytest.raises(UsageError, match="budget in % cannot judge an estimate in ms"):
        judge(Normal(1.0, unit="ms"), 5)
    with pytest.raises(UsageError, match="budget in ms cannot judge an estimate in %"):
        judge_absolute(Normal(1.0), 2)


def test_not_comparable_carries_its_reasons() -> None:
    judged = not_comparable(["threads 2 and 4", "precision fp32 and fp16"])
    assert judged.verdict == "not comparable"
    assert judged.reason == "threads 2 and 4; precision fp32 and fp16"


def test_a_real_difference_needs_the_95_percent_interval_off_zero() -> None:
    assert not differs(Normal(1.9))
    assert differs(Normal(2.0))
    assert differs(Normal(-2.0))
    assert not differs(Normal(-1.9))


def holm_by_p_values(p_values: list[float], alpha: float) -> list[bool]:
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    rejected = [False] * len(p_values)
    for rank, i in enumerate(order):
        if p_values[i] >= alpha / (len(p_values) - rank):
            break
        rejected[i] = True
    return rejected


def test_holm_decides_fails_as_the_textbook_does_and_passes_need_no_correction() -> None:
    rng = np.random.default_rng(2)
    differing = 0
    for _ in range(200):
        values = rng.uniform(1.0, 9.0, 6).tolist()
        judged = judge_all([Claim(Normal(value), 5.0) for value in values])
        alone = [judge(Normal(value), 5.0).verdict for value in values]
        fails = holm_by_p_values([float(norm.sf(value - 5.0)) for value in values], 0.05)
        assert [one.verdict == "fail" for one in judged] == fails
        assert [one.verdict == "pass" for one in judged] == [verdict == "pass" for verdict in alone]
        differing += [one.verdict for one in judged] != alone
    assert differing > 20


def test_holm_steps_down_and_says_how_many_cells() -> None:
    # p 0.0179 and 0.0287: the first clears 0.05/2, and then the second clears 0.05.
    judged = judge_all([Claim(Normal(7.1), 5.0), Claim(Normal(6.9), 5.0)])
    assert [one.verdict for one in judged] == ["fail", "fail"]
    assert [one.alpha for one in judged] == [0.025, 0.05]
    assert judged[0].cells_tested == 2
    assert "2 judged together" in judged[0].reason
    assert [one.verdict for one in judge_all([Claim(Normal(6.9), 5.0)] * 2)] == ["inconclusive"] * 2


def test_an_overall_pass_is_false_in_at_most_five_percent_without_a_correction() -> None:
    # One cell exactly on its budget, the others far below: the worst case of an overall pass.
    rng = np.random.default_rng(3)
    claims = [[Claim(Normal(5.0 + rng.normal()), 5.0), Claim(Normal(-5.0), 5.0)] for _ in range(2000)]
    passed = sum(all(one.verdict == "pass" for one in judge_all(family)) for family in claims)
    assert 70 <= passed <= 130


def test_no_cells_no_judgements() -> None:
    assert judge_all([]) == ()


@pytest.mark.parametrize(("sd", "pairs"), [(0.01, 5), (0.02, 13), (0.03, 28)])
def test_pairs_to_show_that_3_2_percent_is_below_5(sd: float, pairs: int) -> None:
    assert pairs_to_clear(sd, math.log(1.05) - math.log(1.032), alpha=0.05) == pairs


def test_the_promised_power_is_kept() -> None:
    logs = np.random.default_rng(3).normal(math.log(1.032), 0.02, (4000, 13))
    t = float(student.ppf(0.95, 12))
    upper = logs.mean(axis=1) + t * logs.std(axis=1, ddof=1) / math.sqrt(13)
    assert np.mean(upper < math.log(1.05)) == pytest.approx(0.9, abs=0.02)


def test_no_number_of_pairs_decides_an_overhead_on_its_budget() -> None:
    assert pairs_to_clear(0.01, 0.0, alpha=0.05) is None
    assert pairs_to_clear(0.01, 1e-9, alpha=0.05) is None
    assert pairs_to_clear(0.0, 0.01, alpha=0.05) == 2
    assert pairs_needed(duet(0.05), 5.0) is None
