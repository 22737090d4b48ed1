"""Number of pairs needed for an interval of a given width, or to decide a budget."""

from __future__ import annotations

import math
from collections.abc import Callable

from gputax.stats.distributions import noncentral_t_cdf, t_quantile

MOST_PAIRS = 10_000_000
"""No duet is longer than this: beyond it the answer is None."""
POWER = 0.9


def pairs_for_half_width(sd_percent: float, half_width_percent: float) -> int | None:
    """Return how many pairs give this 95 % half-width when ln(B/A) has this standard deviation."""
    return _fewest(lambda n: t_quantile(0.975, n - 1.0) * sd_percent / math.sqrt(n) <= half_width_percent)


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
