"""Pass, fail or undecided: an estimate compared with its budget by one-sided 95 % bounds; how many pairs decide."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from gputax.errors import UsageError
from gputax.stats.estimates import Estimate, Unit, log_of_percent, noncentral_t_cdf, t_quantile
from gputax.stats.pairs import PairedEstimate
from gputax.text import digits

Verdict = Literal["pass", "fail", "inconclusive", "not comparable"]
ALPHA = 0.05


@dataclass(frozen=True)
class Judgement:
    """A verdict with the numbers it is based on."""

    verdict: Verdict
    reason: str
    budget: float | None = None
    unit: Unit = "%"
    lower: float | None = None
    upper: float | None = None
    """The one-sided bounds that were compared with the budget."""
    alpha: float = ALPHA
    """The risk of each bound; smaller than 0.05 if several cells share it."""
    cells_tested: int = 1
    pairs_needed: int | None = None
    """For `inconclusive` pairs: the total number needed to decide it, if the overhead is as estimated."""


@dataclass(frozen=True)
class Claim:
    """An estimate and its budget, in the estimate's unit."""

    estimate: Estimate
    budget: float


def judge(
    estimate: Estimate, budget_percent: float, *, alpha: float = ALPHA, fail_alpha: float | None = None
) -> Judgement:
    """Compare an overhead in percent with its budget; `fail_alpha` is the risk of `fail` where it is a smaller one."""
    return _judgement(_claim(estimate, budget_percent, "%"), alpha, 1, fail_alpha)


def judge_absolute(
    estimate: Estimate, budget_ms: float, *, alpha: float = ALPHA, fail_alpha: float | None = None
) -> Judgement:
    """Compare a difference in milliseconds with its budget, e.g. p99 +2 ms."""
    return _judgement(_claim(estimate, budget_ms, "ms"), alpha, 1, fail_alpha)


def judge_all(claims: Sequence[Claim], *, alpha: float = ALPHA) -> tuple[Judgement, ...]:
    """Judge many cells at once.

    An overall pass needs every cell to pass, so the chance of a false one is at most alpha without any correction (an
    intersection-union test). One false `fail` is enough to fail all: Holm's rule keeps the chance of any at alpha.
    """
    checked = [_claim(claim.estimate, claim.budget, claim.estimate.unit) for claim in claims]
    failed, open_level = _holm(lambda i, level: _verdict(checked[i], level) == "fail", len(checked), alpha)
    return tuple(
        _judgement(claim, alpha, 1)
        if _verdict(claim, alpha) == "pass"
        else _judgement(claim, failed.get(i, open_level), len(checked))
        for i, claim in enumerate(checked)
    )


def not_comparable(reasons: Sequence[str]) -> Judgement:
    """Return the verdict on two cells that must not be compared, with what differs."""
    return Judgement("not comparable", "; ".join(reasons))


def differs(estimate: Estimate) -> bool:
    """Return whether the 95 % interval excludes zero: a real difference, large or small."""
    lower, upper = estimate.one_sided(ALPHA / 2.0)
    return lower > 0.0 or upper < 0.0


def pairs_needed(estimate: PairedEstimate, budget_percent: float, *, alpha: float = ALPHA) -> int | None:
    """Return the total number of pairs needed for a verdict, None if the overhead equals its budget."""
    distance = log_of_percent(budget_percent) - estimate.log_mean.mean
    # Correlation increases the number of pairs as it increases the standard error.
    sd = estimate.log_mean.se * math.sqrt(estimate.pairs)
    return pairs_to_clear(sd, abs(distance), alpha=alpha)


def _claim(estimate: Estimate, budget: float, unit: Unit) -> Claim:
    if estimate.unit != unit:
        raise UsageError(f"a budget in {unit} cannot judge an estimate in {estimate.unit}")
    if not math.isfinite(budget) or (unit == "%" and budget <= -100.0):
        raise UsageError(f"{budget:g} {unit} is not a budget", next_step="write for example 5 for 5 %")
    return Claim(estimate, budget)


def _verdict(claim: Claim, alpha: float, fail_alpha: float | None = None) -> Verdict:
    lower, upper = _bounds(claim, alpha, fail_alpha)
    if upper < claim.budget:
        return "pass"
    return "fail" if lower > claim.budget else "inconclusive"


def _bounds(claim: Claim, alpha: float, fail_alpha: float | None) -> tuple[float, float]:
    lower, upper = claim.estimate.one_sided(alpha)
    return (lower if fail_alpha is None else claim.estimate.one_sided(fail_alpha)[0]), upper


def _judgement(claim: Claim, alpha: float, cells: int, fail_alpha: float | None = None) -> Judgement:
    verdict = _verdict(claim, alpha, fail_alpha)
    lower, upper = _bounds(claim, alpha, fail_alpha)
    unit, budget = claim.estimate.unit, claim.budget
    used = fail_alpha if verdict == "fail" and fail_alpha is not None else alpha
    risk = f"one-sided {digits(100.0 * (1.0 - used), 4)} %" + (f", {cells} judged together" if cells > 1 else "")
    needed = None
    if verdict == "pass":
        reason = f"upper bound {digits(upper, 3)} {unit} is below the budget of {budget:g} {unit} ({risk})"
    elif verdict == "fail":
        reason = f"lower bound {digits(lower, 3)} {unit} is above the budget of {budget:g} {unit} ({risk})"
    else:
        reason = f"the budget of {budget:g} {unit} {_undecided(lower, upper, unit)} ({risk})"
        if isinstance(claim.estimate, PairedEstimate):
            more_than_now = claim.estimate.pairs + 1
            expected = pairs_needed(claim.estimate, budget, alpha=alpha)
            needed = None if expected is None else max(expected, more_than_now)
    return Judgement(verdict, reason, budget, unit, lower, upper, alpha, cells, needed)


def _undecided(lower: float, upper: float, unit: Unit) -> str:
    """Return the position of the budget relative to the bounds, as text."""
    low, high = digits(lower, 3), digits(upper, 3)
    if math.isfinite(lower) and math.isfinite(upper):
        return f"is between {low} and {high} {unit}"
    if math.isfinite(lower):
        return f"is above {low} {unit}, and no upper bound is known"
    return f"is below {high} {unit}, and no lower bound is known" if math.isfinite(upper) else "has no known bound"


def _holm(decides: Callable[[int, float], bool], cells: int, alpha: float) -> tuple[dict[int, float], float]:
    """Return the risk at which each decided cell was decided, and the risk used for the others."""
    decided: dict[int, float] = {}
    while True:
        level = alpha / max(1, cells - len(decided))
        new = [i for i in range(cells) if i not in decided and decides(i, level)]
        if not new:
            return decided, level
        decided.update(dict.fromkeys(new, level))


MOST_PAIRS = 10_000_000
"""No duet is longer than this: beyond it the answer is None."""
POWER = 0.9


def pairs_to_clear(sd: float, distance: float, *, alpha: float, power: float = POWER) -> int | None:
    """Return the pairs needed for a one-sided bound to clear a budget at this distance in 9 of 10 runs.

    The shorter formula (t*sd/distance)^2 ignores the power and so is too small in half of all runs.
    """
    if distance <= 0.0 or sd <= 0.0:
        return None if distance <= 0.0 else 2

    def enough(n: int) -> bool:
        # nctdtr is exact; a normal approximation gives one pair more at 13.
        t_needed = t_quantile(1.0 - alpha, n - 1.0)
        return noncentral_t_cdf(t_needed, n - 1.0, distance * math.sqrt(n) / sd) <= 1.0 - power

    return _fewest(enough)


def _fewest(enough: Callable[[int], bool]) -> int | None:
    low, high = 1, 2
    while not enough(high):
        low, high = high, 2 * high
        if low > MOST_PAIRS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


LOOKS = (6, 9, 14, 21, 32, 48, 72, 108)
"""The numbers of restarts after which a duet looks whether its verdict is clear."""
# The risk of each look, by how many there may be, so that the first wrong bound among all of them has 5 % (one-sided)
# or 2.5 % on each side of an interval: 400 000 simulated sequences of t statistics. One look at any time ("stop when
# significant") would be wrong in 27 % of runs.
_VERDICT_RISKS = (0.05, 0.0317, 0.0232, 0.0184, 0.0152, 0.0130, 0.0112, 0.0100)
_BOUND_RISKS = (0.025, 0.0151, 0.0108, 0.0085, 0.0070, 0.0059, 0.0052, 0.0046)


@dataclass(frozen=True)
class Risks:
    """The one-sided risks that an estimate is judged with."""

    verdict: float = 0.05
    """Of the bound that is compared with a budget."""
    bound: float = 0.025
    """Of each end of the 95 % interval."""


@dataclass(frozen=True)
class Looks:
    """The looks that are planned before the first one."""

    at_restarts: tuple[int, ...] = ()
    """Before the last look, which comes when the time is over."""

    @property
    def risks(self) -> Risks:
        """The risks of each look, the last one included."""
        # The last look comes at any number of restarts, not at the next of the list: it counts as two.
        last = min(len(self.at_restarts) + 1, len(LOOKS) - 1) if self.at_restarts else 0
        return Risks(_VERDICT_RISKS[last], _BOUND_RISKS[last])


def looks_for(most_restarts: int) -> Looks:
    """Return the looks of a duet that has time for so many restarts."""
    return Looks(tuple(restarts for restarts in LOOKS[:-1] if restarts < most_restarts))
