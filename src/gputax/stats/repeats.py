"""The overhead between two sides that were each measured several times, each time by a new process.

The repeats are the replicates: two runs of the same program differ by more than the requests inside one run show.
The bounds are the outer ones of two models. Welch's t over the repeats, for the ratio of means by Fieller's theorem;
and a regression with a trend over the repeats that both sides share, because a machine that warms up between the
two sides looks like an overhead; what a repeat keeps of the last one's deviation widens it. Alternating the two sides
makes both equally wide; one side after the other makes the second about twice as wide. docs/method.md has the
simulated coverage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gputax.errors import ResultsError
from gputax.stats.estimates import UNBOUNDED_PERCENT, Bounds, Gap, Ratio, Unit, percent_interval, t_quantile
from gputax.stats.inputs import FloatArray
from gputax.stats.series import ROUNDING

# Two repeats a side: t has one or two degrees of freedom, and if processes come in two speeds, each side misses one
# of them every second time. docs/method.md has the numbers.
FEWEST_REPEATS = 3
# So few repeats cannot show that a machine remembers for longer.
MOST_KEPT = 0.9


@dataclass(frozen=True)
class Repeats:
    """One value per repeat of one side."""

    values: FloatArray
    at_s: FloatArray | None = None
    """When each repeat began; None if it is not known."""

    @classmethod
    def of(cls, values: Sequence[float], at_s: Sequence[float | None] = ()) -> Repeats:
        """Return at least two values with their times, if all of them are known."""
        if len(values) < 2:
            raise ResultsError("one value has no spread", next_step="measure at least three repeats")
        known = [when for when in at_s if when is not None]
        return cls(np.array(values, dtype=np.float64), np.array(known) if len(known) == len(values) else None)

    @cached_property
    def mean(self) -> float:
        """The mean over the repeats."""
        return float(self.values.mean())

    @cached_property
    def se(self) -> float:
        """The standard error of the mean; 0 if the repeats differ by no more than rounding."""
        sd = float(self.values.std(ddof=1))
        return 0.0 if sd <= ROUNDING * max(1.0, abs(self.mean)) else sd / math.sqrt(self.values.size)

    def half_width(self, alpha: float) -> float:
        """Return the distance from the mean to the one-sided bound of risk alpha."""
        return t_quantile(1.0 - alpha, self.values.size - 1.0) * self.se


@dataclass(frozen=True)
class Trended:
    """The difference between the sides beside a trend that both share."""

    difference: float
    se: float
    degrees_of_freedom: float

    def one_sided(self, alpha: float) -> Bounds:
        """Return the lower and the upper bound, each with risk alpha on its own."""
        return _around(self.difference, t_quantile(1.0 - alpha, self.degrees_of_freedom) * self.se)


def repeated_ratio(base: Repeats, other: Repeats) -> Ratio:
    """Return the overhead in percent: the ratio of the means over the repeats."""
    logs = [Repeats(np.log(side.values), side.at_s) for side in (base, other)]
    beside_trend = trended(logs[0], logs[1])

    def bounds(alpha: float) -> Bounds:
        plain = _fieller(base, other, alpha)
        return plain if beside_trend is None else _outer(plain, percent_interval(beside_trend.one_sided(alpha)))

    return Ratio(base.mean, other.mean, bounds)


def repeated_gap(base: Repeats, other: Repeats, unit: Unit) -> Gap:
    """Return the difference of the means over the repeats."""
    beside_trend = trended(base, other)

    def bounds(alpha: float) -> Bounds:
        se = math.hypot(base.se, other.se)
        plain = _around(other.mean - base.mean, t_quantile(1.0 - alpha, _welch_df(base, other, 1.0)) * se)
        return plain if beside_trend is None else _outer(plain, beside_trend.one_sided(alpha))

    return Gap(base.mean, other.mean, bounds, unit)


def borrowed_ratio(base: float, other: float, counts: tuple[int, int], history: Repeats) -> Ratio:
    """Return the overhead in percent between values whose spread is known from the repeats of another run.

    `counts` says how many runs each value is the mean of.
    """
    se = float(np.log(history.values).std(ddof=1)) * math.sqrt(sum(1.0 / count for count in counts))

    def bounds(alpha: float) -> Bounds:
        reach = t_quantile(1.0 - alpha, history.values.size - 1.0) * se
        return percent_interval(_around(math.log(other / base), reach))

    return Ratio(base, other, bounds)


def borrowed_gap(base: float, other: float, counts: tuple[int, int], history: Repeats, unit: Unit) -> Gap:
    """Return the difference between values whose spread is known from the repeats of another run."""
    # A time scatters in proportion to itself; a share of late queries has no scale of its own.
    scales = (base / history.mean, other / history.mean) if unit == "ms" else (1.0, 1.0)
    parts = (scale**2 / count for scale, count in zip(scales, counts, strict=True))
    se = float(history.values.std(ddof=1)) * math.sqrt(sum(parts))
    return Gap(
        base, other, lambda alpha: _around(other - base, t_quantile(1.0 - alpha, history.values.size - 1.0) * se), unit
    )


def trended(base: Repeats, other: Repeats) -> Trended | None:
    """Return the difference beside a straight trend over the repeats; None if the order in time is not known.

    The trend runs over the order of the repeats and not over the clock: a pause between the sides then counts as
    one repeat, and a trend seen within minutes is not continued over days.
    """
    if base.at_s is None or other.at_s is None:
        return None
    values = np.concatenate((base.values, other.values))
    order = np.argsort(np.argsort(np.concatenate((base.at_s, other.at_s)), kind="stable"), kind="stable")
    side = np.concatenate((np.zeros(base.values.size), np.ones(other.values.size)))
    design = np.column_stack((np.ones(values.size), order - order.mean(), side))
    degrees_of_freedom = values.size - 3
    if degrees_of_freedom < 1:
        return None
    weights = np.linalg.inv(design.T @ design) @ design.T
    fitted = weights @ values
    residual = values - design @ fitted
    kept = _kept_by_the_next(residual[np.argsort(order)])
    # The variance of the difference and of the residuals if each repeat keeps that part of the last one's deviation.
    likeness = kept ** np.abs(np.subtract.outer(order, order))
    spread = float(np.trace((np.eye(values.size) - design @ weights) @ likeness))
    variance = float(residual @ residual) * max(
        float(weights[2] @ likeness @ weights[2]) / spread, float(weights[2] @ weights[2]) / degrees_of_freedom
    )
    return Trended(float(fitted[2]), math.sqrt(variance), float(degrees_of_freedom))


def _kept_by_the_next(residual: FloatArray) -> float:
    """Return the part of a repeat's deviation that the next one keeps, as a machine that wanders for minutes has it.

    A fit takes some of it away: without the 2/n eight repeats in a row cover 93.5 % instead of 95 % there.
    """
    total = float(residual @ residual)
    if total <= 0.0:
        return 0.0
    found = float(residual[1:] @ residual[:-1]) / total + 2.0 / residual.size
    return min(MOST_KEPT, max(0.0, found))


def _fieller(base: Repeats, other: Repeats, alpha: float) -> Bounds:
    """Solve (other - R base)^2 = t^2 (se_other^2 + R^2 se_base^2) for R, as percent."""
    t = t_quantile(1.0 - alpha, _welch_df(base, other, other.mean / base.mean))
    base_term = base.mean**2 - (t * base.se) ** 2
    other_term = other.mean**2 - (t * other.se) ** 2
    if base_term <= 0.0:
        return UNBOUNDED_PERCENT
    product = base.mean * other.mean
    root = math.sqrt(max(0.0, product**2 - base_term * other_term))
    return 100.0 * (max((product - root) / base_term, 0.0) - 1.0), 100.0 * ((product + root) / base_term - 1.0)


def _welch_df(base: Repeats, other: Repeats, ratio: float) -> float:
    """Return Welch's degrees of freedom for other - ratio base."""
    a, b = (ratio * base.se) ** 2, other.se**2
    if a + b == 0.0:
        return float(base.values.size + other.values.size - 2)
    return (a + b) ** 2 / (a**2 / (base.values.size - 1) + b**2 / (other.values.size - 1))


def _around(centre: float, reach: float) -> Bounds:
    return centre - reach, centre + reach


def _outer(a: Bounds, b: Bounds) -> Bounds:
    return min(a[0], b[0]), max(a[1], b[1])
