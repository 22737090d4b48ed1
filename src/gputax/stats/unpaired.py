"""The difference between two single runs, with the spread within them; how much runs differ is not in it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from numpy.typing import ArrayLike

from gputax.stats.estimates import UNBOUNDED_PERCENT, Unit
from gputax.stats.inputs import Better, FloatArray, positive_values
from gputax.stats.series import SeriesMean, series_mean

# Report the widening if an interval is this much wider than for independent samples.
CORRELATED = 1.2


@dataclass(frozen=True)
class UnpairedEstimate:
    """The overhead of B over A from separate runs; `base` is the denominator of the ratio."""

    overhead_percent: float
    ci95_percent: tuple[float, float]
    one_sided95_percent: tuple[float, float]
    base: SeriesMean
    other: SeriesMean
    notices: tuple[str, ...]
    unit: Unit = "%"
    paired: Literal[False] = False

    @property
    def value(self) -> float:
        """The overhead in percent."""
        return self.overhead_percent

    def one_sided(self, alpha: float) -> tuple[float, float]:
        """Return the lower and the upper bound in percent, each with risk alpha on its own."""
        return _bounds(self.base, self.other, alpha)


def fieller(a: ArrayLike, b: ArrayLike, better: Better = "lower") -> UnpairedEstimate:
    """Return the ratio of arithmetic means by Fieller's theorem, for throughput totals and mean latencies.

    The bounds are missing if the denominator is not clearly above zero.
    """
    base, other = map(series_mean, _sides(a, b, better))
    bounds = _bounds(base, other, 0.025)
    notices = []
    if bounds == UNBOUNDED_PERCENT:
        notices.append("the base is too noisy for a ratio: its interval has no bounds")
    inflation = max(base.inflation, other.inflation)
    if inflation > CORRELATED:
        notices.append(f"samples are correlated: the interval is widened by a factor of up to {inflation:.1f}")
    return UnpairedEstimate(
        overhead_percent=100.0 * (other.mean / base.mean - 1.0),
        ci95_percent=bounds,
        one_sided95_percent=_bounds(base, other, 0.05),
        base=base,
        other=other,
        notices=tuple(notices),
    )


def _sides(a: ArrayLike, b: ArrayLike, better: Better) -> tuple[FloatArray, FloatArray]:
    side_a, side_b = positive_values(a, "A"), positive_values(b, "B")
    # If higher is better, the cost is A/B: the time one sample takes in B over that in A.
    return (side_a, side_b) if better == "lower" else (side_b, side_a)


def _bounds(base: SeriesMean, other: SeriesMean, alpha: float) -> tuple[float, float]:
    """Solve (other - R*base)^2 = h_other^2 + R^2*h_base^2 for R, h being each side's half-width."""
    base_term = base.mean**2 - base.half_width(alpha) ** 2
    other_term = other.mean**2 - other.half_width(alpha) ** 2
    if base_term <= 0.0:
        return UNBOUNDED_PERCENT
    product = base.mean * other.mean
    root = math.sqrt(max(0.0, product**2 - base_term * other_term))
    low, high = (product - root) / base_term, (product + root) / base_term
    return 100.0 * (max(low, 0.0) - 1.0), 100.0 * (high - 1.0)
