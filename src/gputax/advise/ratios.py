"""Ratio of a percentile to the mean of the same run: converts a model of means to p50, p90 or p99."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputax.advise.fitting import Uncertainty
from gputax.advise.table import Run, Series
from gputax.advise.targets import TOKEN_PERCENTILES
from gputax.plan.notices import Notice
from gputax.stats.estimates import t_two_sided_p
from gputax.stats.inputs import FloatArray

TREND_RISK = 0.05


@dataclass(frozen=True)
class Ratio:
    """ln(percentile / mean) of one technique, assumed equal for any number of tenants, within its spread."""

    statistic: str
    log: float
    uncertainty: Uncertainty
    tenants: tuple[int, ...] = ()
    """The numbers of tenants at which it was measured; empty for the mean itself."""
    notices: tuple[Notice, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether it changes with the number of tenants and therefore must not be extrapolated."""
        return any(notice.code == "ratio-trend" for notice in self.notices)


MEAN = Ratio("mean", 0.0, Uncertainty(()))


def ratio_of(series: Series, statistic: str) -> Ratio | None:
    """Return the ratio from the runs that have this percentile; None if there are none."""
    if statistic == "mean":
        return MEAN
    by_count = {
        point.tenants: np.log([run.percentiles_ms[statistic] / run.mean_ms for run in having])
        for point in series.points
        if (having := [run for run in point.runs if statistic in run.percentiles_ms])
    }
    if not by_count:
        return None
    tenants = tuple(by_count)
    notices = [*_missing(series, statistic, tenants), *_trend(by_count, statistic)]
    uncertainty = _spread(list(by_count.values()))
    if uncertainty.parts is None:
        notices.append(Notice("ratio-once", f"{statistic} was measured once: no spread, no interval"))
    center = float(np.mean([values.mean() for values in by_count.values()]))
    return Ratio(statistic, center, uncertainty, tenants, tuple(notices))


def _spread(groups: list[FloatArray]) -> Uncertainty:
    """Return the variance for a new run at a new number of tenants: between numbers, and between runs of one number."""
    freedom = float(sum(values.size - 1 for values in groups))
    squares = sum(float(((values - values.mean()) ** 2).sum()) for values in groups)
    within = squares / freedom if freedom else 0.0
    if len(groups) == 1:
        (values,) = groups
        return Uncertainty(((within * (1.0 + 1.0 / values.size), freedom),)) if freedom else Uncertainty.unknown()
    between = float(np.var([values.mean() for values in groups], ddof=1)) * (1.0 + 1.0 / len(groups))
    # The variance between numbers of tenants already includes this part of the scatter between runs.
    held = float(np.mean([1.0 / values.size for values in groups]))
    return Uncertainty(((between, float(len(groups) - 1)), (within * (1.0 - held), freedom)))


def _missing(series: Series, statistic: str, having: tuple[int, ...]) -> list[Notice]:
    lacking = [count for count in series.tenants if count not in having]
    if not lacking:
        return []
    text = f"{statistic} is known only for {_listed(having)} tenants; there were too few samples for {_listed(lacking)}"
    return [Notice("ratio-partly", text)]


def _trend(by_count: dict[int, FloatArray], statistic: str) -> list[Notice]:
    """Warn when the ratio changes with ln(tenants): test the slope of a straight line."""
    x = np.array([math.log(count) for count, values in by_count.items() for _ in values])
    y = np.concatenate(list(by_count.values()))
    freedom = y.size - 2
    if len(by_count) < 3 or freedom < 1:
        return []
    centred = x - x.mean()
    slope = float((centred * y).sum() / (centred**2).sum())
    rest = y - y.mean() - slope * centred
    error = math.sqrt(float((rest**2).sum()) / freedom / float((centred**2).sum()))
    if slope == 0.0 or (error > 0.0 and t_two_sided_p(slope / error, freedom) >= TREND_RISK):
        return []
    counts = sorted(by_count)
    low, high = (math.exp(float(by_count[count].mean())) for count in (counts[0], counts[-1]))
    text = (
        f"{statistic}/mean changes with the number of tenants ({low:.2f} at {counts[0]}, {high:.2f} at {counts[-1]}): "
        "it is not extrapolated"
    )
    return [Notice("ratio-trend", text, slope)]


def _listed(counts: tuple[int, ...] | list[int]) -> str:
    return ", ".join(map(str, counts))


RATE = "rate"
_LOWER = "the larger of that of all tenants and the worst tenant's mean"


@dataclass(frozen=True)
class Spread:
    """How much worse the worst tenant may be than all tenants, as a logarithm."""

    at_worst: float
    at_best: float
    uncertainty: Uncertainty
    """Uncertainty of a new run."""


@dataclass(frozen=True)
class Unevenness:
    """ln(worst tenant / all tenants) of one statistic, by number of tenants; empty without figures per tenant."""

    statistic: str
    by_count: Mapping[int, tuple[float, ...]]
    notices: tuple[Notice, ...] = ()

    @property
    def known(self) -> bool:
        """Whether the source has figures per tenant."""
        return bool(self.by_count)

    def at(self, tenants: int) -> Spread:
        """Return it for a number of tenants: as measured, else the range of the two numbers around it; beyond them,
        at worst the worst of all, grown as the worst of more tenants does by chance alone.

        It has no form: it is always 1 for one tenant, and a tenant that starves does so from some number of tenants on.
        """
        if tenants == 1 or not self.by_count:
            return Spread(0.0, 0.0, Uncertainty(()))
        sign = -1.0 if self.statistic == RATE else 1.0
        by_harm = sorted(self._beside(tenants), key=lambda count: sign * float(np.mean(self.by_count[count])))
        values = self.by_count[by_harm[-1]]
        mildest = max(self.by_count) if tenants > max(self.by_count) else by_harm[0]
        freedom = len(values) - 1
        variance = float(np.var(values, ddof=1)) * (1.0 + 1.0 / len(values)) if freedom else 0.0
        growth = _worst_grows(by_harm[-1], tenants) if tenants > max(self.by_count) else 1.0
        return Spread(
            growth * float(np.mean(values)),
            float(np.mean(self.by_count[mildest])),
            Uncertainty(((growth**2 * variance, float(freedom)),) if variance > 0.0 else ()),
        )

    def _beside(self, tenants: int) -> list[int]:
        counts = sorted(self.by_count)
        if tenants in counts:
            return [tenants]
        if tenants > counts[-1]:
            return counts
        return [
            *[count for count in counts if count < tenants][-1:],
            *[count for count in counts if count > tenants][:1],
        ]


def _worst_grows(measured: int, tenants: int) -> float:
    """Return how much further out the worst of more tenants lies: slightly above the ratio of normal maxima.

    From 2 to 4 tenants the expected maximum of normal values grows 1.8-fold, this 2-fold; from 4 to 8 1.4 and 1.5.
    """
    return math.log(tenants) / math.log(measured) if measured > 1 else 1.0


def unevenness(series: Series, statistic: str) -> Unevenness:
    """Return the unevenness of the mean, of a percentile or of the rate, from all runs that have figures per tenant."""
    by_count, guessed = {}, set()
    for point in series.points:
        found = []
        for run in point.runs:
            log = _log(run, statistic, point.tenants)
            if log is not None:
                found.append(log)
                if point.tenants > 1 and statistic in run.percentiles_ms and statistic not in run.worst_percentiles_ms:
                    guessed.add(point.tenants)
        if found:
            by_count[point.tenants] = tuple(found)
    return Unevenness(statistic, by_count, _guessed(statistic, guessed))


def worst(run: Run, statistic: str, tenants: int) -> float | None:
    """Return what the worst tenant of a run had: milliseconds, or inferences per second; None if unknown.

    If a tenant has too few samples for its own percentile, its mean is a lower bound: the worst has at least that, or
    the percentile of all tenants.
    """
    if statistic == RATE:
        return run.slowest_per_s
    if statistic == "mean":
        return run.worst_mean_ms
    of_all = run.percentiles_ms.get(statistic)
    if of_all is None or run.worst_mean_ms is None:
        return None
    if tenants == 1:
        return of_all
    # The mean of a whole answer says nothing of one of its tokens.
    lower = of_all if statistic in TOKEN_PERCENTILES else max(of_all, run.worst_mean_ms)
    return run.worst_percentiles_ms.get(statistic, lower)


def _log(run: Run, statistic: str, tenants: int) -> float | None:
    value = worst(run, statistic, tenants)
    if statistic == RATE:
        of_all = None if run.aggregate_per_s is None else run.aggregate_per_s / tenants
    else:
        of_all = run.mean_ms if statistic == "mean" else run.percentiles_ms.get(statistic)
    return None if value is None or of_all is None else math.log(value / of_all)


def _guessed(statistic: str, counts: set[int]) -> tuple[Notice, ...]:
    if not counts:
        return ()
    text = (
        f"with {', '.join(map(str, sorted(counts)))} tenants at least one had too few samples for its {statistic}: "
        f"{'that of all tenants' if statistic in TOKEN_PERCENTILES else _LOWER} is used instead"
    )
    return (Notice("worst-tenant-guessed", text),)
