"""When a duet may look at its result, what each look costs, and how many pairs it needs to decide."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from gputax.stats.distributions import noncentral_t_cdf, t_quantile

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
