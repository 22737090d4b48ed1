"""A percentile over the mean of the same run: how a model of means is carried to p50, p90 or p99."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gputax.advise.intervals import Uncertainty
from gputax.advise.table import Series
from gputax.plan.notices import Notice
from gputax.stats.distributions import t_two_sided_p
from gputax.stats.inputs import FloatArray

TREND_RISK = 0.05


@dataclass(frozen=True)
class Ratio:
    """ln(percentile / mean) of one technique, taken as the same for any number of tenants; its spread says how far."""

    statistic: str
    log: float
    uncertainty: Uncertainty
    tenants: tuple[int, ...] = ()
    """Where it was measured; empty for the mean itself."""
    notices: tuple[Notice, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether it grows or falls with the tenants, so that it must not be carried beyond them."""
        return any(notice.code == "ratio-trend" for notice in self.notices)


MEAN = Ratio("mean", 0.0, Uncertainty(()))


def ratio_of(series: Series, statistic: str) -> Ratio | None:
    """Return the ratio from the runs that have this percentile; None where none has."""
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
    """Return what a new run of a new number of tenants may differ by: between numbers, and between runs of one."""
    freedom = float(sum(values.size - 1 for values in groups))
    squares = sum(float(((values - values.mean()) ** 2).sum()) for values in groups)
    within = squares / freedom if freedom else 0.0
    if len(groups) == 1:
        (values,) = groups
        return Uncertainty(((within * (1.0 + 1.0 / values.size), freedom),)) if freedom else Uncertainty.unknown()
    between = float(np.var([values.mean() for values in groups], ddof=1)) * (1.0 + 1.0 / len(groups))
    # The means between numbers hold this part of the runs' own scatter already.
    held = float(np.mean([1.0 / values.size for values in groups]))
    return Uncertainty(((between, float(len(groups) - 1)), (within * (1.0 - held), freedom)))


def _missing(series: Series, statistic: str, having: tuple[int, ...]) -> list[Notice]:
    lacking = [count for count in series.tenants if count not in having]
    if not lacking:
        return []
    text = (
        f"{statistic} is known with {_listed(having)} tenants only; with {_listed(lacking)} there were too few samples"
    )
    return [Notice("ratio-partly", text)]


def _trend(by_count: dict[int, FloatArray], statistic: str) -> list[Notice]:
    """Say when the ratio changes with ln(tenants): a straight line's slope against its scatter."""
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
        f"{statistic} over mean changes with the tenants ({low:.2f} with {counts[0]}, {high:.2f} with {counts[-1]}): "
        "it is not carried beyond what was measured"
    )
    return [Notice("ratio-trend", text, slope)]


def _listed(counts: tuple[int, ...] | list[int]) -> str:
    return ", ".join(map(str, counts))
