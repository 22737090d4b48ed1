"""Estimates of an overhead: the interface of every method, and the quantiles behind their bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

Unit = Literal["%", "ms"]
UNBOUNDED_PERCENT = (-100.0, math.inf)
"""The interval of an unknown positive ratio."""


Bounds = tuple[float, float]


class Estimate(Protocol):
    """A cost with its uncertainty, in percent or in milliseconds."""

    @property
    def unit(self) -> Unit:
        """The unit of the value and of its bounds."""

    @property
    def value(self) -> float:
        """The cost itself; positive means that B is worse."""

    def one_sided(self, alpha: float) -> Bounds:
        """Return the lower and the upper bound, each with risk alpha on its own."""


def percent_of_log(log: float) -> float:
    """Return exp(log) - 1 in percent; infinite on overflow."""
    return 100.0 * math.expm1(log) if log < 700.0 else math.inf


def log_of_percent(percent: float) -> float:
    """Return ln(1 + percent/100); minus infinity at -100 %."""
    return math.log1p(percent / 100.0) if percent > -100.0 else -math.inf


def lost_percent_of_log(log: float) -> float:
    """Return 100 (1 - new/old) of a throughput, from the log of the cost ratio ln(old/new); at most 100.

    42,000 -> 39,900 samples/s is 5.0 % lost; the time per sample rises by 5.26 %.
    """
    return -100.0 * math.expm1(-log) if log > -700.0 else -math.inf


def lost_percent_interval(log_bounds: Bounds) -> Bounds:
    """Return bounds on the log of the cost ratio as percent of the throughput that is lost, in the same order."""
    return lost_percent_of_log(log_bounds[0]), lost_percent_of_log(log_bounds[1])


def log_of_lost_percent(percent: float) -> float:
    """Return the log of the cost ratio at which this percentage of the throughput is lost; infinite from 100 on."""
    return -math.log1p(-percent / 100.0) if percent < 100.0 else math.inf


def percent_interval(log_bounds: Bounds) -> Bounds:
    """Return bounds on a log ratio as percent; they are no longer symmetric."""
    return percent_of_log(log_bounds[0]), percent_of_log(log_bounds[1])


@dataclass(frozen=True)
class Ratio:
    """The overhead of the other side over the base in percent, for values above zero."""

    base: float
    other: float
    bounds: Callable[[float], Bounds]
    """In percent, for a risk on each side."""
    unit: Unit = "%"

    @property
    def value(self) -> float:
        """The overhead in percent."""
        return 100.0 * (self.other / self.base - 1.0)

    def one_sided(self, alpha: float) -> Bounds:
        """Return the lower and the upper bound in percent, each with risk alpha on its own."""
        return self.bounds(alpha)


@dataclass(frozen=True)
class Gap:
    """The difference of the other side from the base, in the unit of both."""

    base: float
    other: float
    bounds: Callable[[float], Bounds]
    unit: Unit

    @property
    def value(self) -> float:
        """The difference; positive is more."""
        return self.other - self.base

    def one_sided(self, alpha: float) -> Bounds:
        """Return the lower and the upper bound, each with risk alpha on its own."""
        return self.bounds(alpha)


@dataclass(frozen=True)
class ThroughputLost:
    """An estimate of the time added per sample, as the throughput lost: 100 (1 - new/old)."""

    added: Estimate
    """In percent: old/new - 1 of the throughputs."""
    unit: Unit = "%"

    @property
    def value(self) -> float:
        """The loss in percent of the base's throughput."""
        return lost_percent_of_log(log_of_percent(self.added.value))

    def one_sided(self, alpha: float) -> Bounds:
        """Return the lower and the upper bound in percent, each with risk alpha on its own."""
        low, high = self.added.one_sided(alpha)
        return lost_percent_interval((log_of_percent(low), log_of_percent(high)))


# scipy.special is imported inside each function: it costs 0.3 s and scipy.stats 0.7 s more (measured), which
# `gputax --help` must not pay.


def t_quantile(probability: float, degrees_of_freedom: float) -> float:
    """Return the quantile of Student's t at this probability."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, probability))


def t_two_sided_p(t: float, degrees_of_freedom: float) -> float:
    """Return the probability of a t at least this far from 0 on either side."""
    from scipy.special import stdtr

    return float(2.0 * stdtr(degrees_of_freedom, -abs(t)))


def noncentral_t_cdf(t: float, degrees_of_freedom: float, noncentrality: float) -> float:
    """Return the probability of a noncentral t below this value."""
    from scipy.special import nctdtr

    return float(nctdtr(degrees_of_freedom, noncentrality, t))


def f_upper_p(f: float, numerator_df: float, denominator_df: float) -> float:
    """Return the probability of an F ratio at least this large."""
    from scipy.special import fdtrc

    return float(fdtrc(numerator_df, denominator_df, f))


def normal_cdf(z: float) -> float:
    """Return the probability of a standard normal value below z."""
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


def binomial_quantile(probability: float, trials: int, chance: float) -> int:
    """Return the smallest k with P[Binomial(trials, chance) <= k] >= probability."""
    from scipy.special import bdtr, bdtrik

    k = max(0, math.ceil(float(bdtrik(probability, trials, chance))))
    # bdtrik inverts a continuous extension of the sum and may return one above the smallest k.
    return k - 1 if k > 0 and float(bdtr(k - 1, trials, chance)) >= probability else k
