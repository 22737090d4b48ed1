"""The overhead between two runs that were not interleaved: allowed, weaker, and labelled so."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from gputax.stats.distributions import t_quantile
from gputax.stats.estimates import UNBOUNDED_PERCENT, Unit, percent_interval, percent_of_log
from gputax.stats.inputs import Better, FloatArray, positive_values
from gputax.stats.series import SeriesMean, series_mean

Method = Literal["welch", "fieller", "no spread"]
# Simulated with drifting noise: plain Welch intervals of two runs in sequence held the truth in 38 % of runs;
# with correlation counted in they hold it, and are several times wider than those of pairs.
UNPAIRED_NOTICE = "unpaired: what changed on the machine between the two runs is not in this interval"


@dataclass(frozen=True)
class UnpairedEstimate:
    """The overhead of B over A from separate runs; `base` is the denominator of the ratio."""

    overhead_percent: float
    ci95_percent: tuple[float, float]
    one_sided95_percent: tuple[float, float]
    method: Method
    base: SeriesMean | None
    other: SeriesMean | None
    notices: tuple[str, ...]
    unit: Unit = "%"
    paired: Literal[False] = False

    @property
    def value(self) -> float:
        """The overhead in percent."""
        return self.overhead_percent

    def one_sided(self, alpha: float) -> tuple[float, float]:
        """Return the lower and the upper bound in percent, each with risk alpha on its own."""
        return _one_sided(self.method, self.base, self.other, alpha)


def welch(a: ArrayLike, b: ArrayLike, better: Better = "lower") -> UnpairedEstimate:
    """Return the ratio of geometric means by Welch's t on logarithms; samples in the order of measurement.

    More than 100 samples become batch means first: requests of one run are no independent replicates.
    """
    base, other = _sides(a, b, better)
    base_mean, other_mean = series_mean(np.log(base)), series_mean(np.log(other))
    overhead = percent_of_log(other_mean.mean - base_mean.mean)
    return _estimate(overhead, "welch", base_mean, other_mean, ())


def fieller(a: ArrayLike, b: ArrayLike, better: Better = "lower") -> UnpairedEstimate:
    """Return the ratio of arithmetic means by Fieller's theorem, for throughput totals and mean latencies.

    Without bounds when the denominator is itself not clearly above zero.
    """
    base, other = _sides(a, b, better)
    base_mean, other_mean = series_mean(base), series_mean(other)
    overhead = 100.0 * (other_mean.mean / base_mean.mean - 1.0)
    unbounded = _one_sided("fieller", base_mean, other_mean, 0.025) == UNBOUNDED_PERCENT
    notices = ("the base is too noisy for a ratio: its interval has no bounds",) if unbounded else ()
    return _estimate(overhead, "fieller", base_mean, other_mean, notices)


def without_spread(a: float, b: float, better: Better = "lower") -> UnpairedEstimate:
    """Return the bare difference of two numbers that came without spread: never more than inconclusive."""
    base, other = _sides([a], [b], better)
    notices = ("the source gives no spread: a difference, but no interval",)
    return _estimate(100.0 * float(other[0] / base[0] - 1.0), "no spread", None, None, notices)


def _sides(a: ArrayLike, b: ArrayLike, better: Better) -> tuple[FloatArray, FloatArray]:
    side_a, side_b = positive_values(a, "A"), positive_values(b, "B")
    # Where higher is better the cost is A/B: the time one sample takes in B over that in A.
    return (side_a, side_b) if better == "lower" else (side_b, side_a)


def _estimate(
    overhead_percent: float,
    method: Method,
    base: SeriesMean | None,
    other: SeriesMean | None,
    notices: tuple[str, ...],
) -> UnpairedEstimate:
    correlated = [side for side in (base, other) if side and side.inflation > 1.2]
    if correlated:
        worst = max(side.inflation for side in correlated)
        notices = (*notices, f"samples are correlated: the interval is widened up to {worst:.1f} times")
    return UnpairedEstimate(
        overhead_percent=overhead_percent,
        ci95_percent=_one_sided(method, base, other, 0.025),
        one_sided95_percent=_one_sided(method, base, other, 0.05),
        method=method,
        base=base,
        other=other,
        notices=(UNPAIRED_NOTICE, *notices),
    )


def _one_sided(method: Method, base: SeriesMean | None, other: SeriesMean | None, alpha: float) -> tuple[float, float]:
    if base is None or other is None:
        return UNBOUNDED_PERCENT
    return _welch_bounds(base, other, alpha) if method == "welch" else _fieller_bounds(base, other, alpha)


def _welch_bounds(base: SeriesMean, other: SeriesMean, alpha: float) -> tuple[float, float]:
    difference = other.mean - base.mean
    variances = base.se**2, other.se**2
    total = sum(variances)
    if total == 0.0:
        return percent_interval((difference, difference))
    degrees_of_freedom = total**2 / (
        variances[0] ** 2 / base.degrees_of_freedom + variances[1] ** 2 / other.degrees_of_freedom
    )
    half_width = t_quantile(1.0 - alpha, degrees_of_freedom) * math.sqrt(total)
    return percent_interval((difference - half_width, difference + half_width))


def _fieller_bounds(base: SeriesMean, other: SeriesMean, alpha: float) -> tuple[float, float]:
    """Solve (other - R*base)^2 = h_other^2 + R^2*h_base^2 for R, h being each side's half-width."""
    base_term = base.mean**2 - base.half_width(alpha) ** 2
    other_term = other.mean**2 - other.half_width(alpha) ** 2
    if base_term <= 0.0:
        return UNBOUNDED_PERCENT
    product = base.mean * other.mean
    root = math.sqrt(max(0.0, product**2 - base_term * other_term))
    low, high = (product - root) / base_term, (product + root) / base_term
    return 100.0 * (max(low, 0.0) - 1.0), 100.0 * (high - 1.0)
