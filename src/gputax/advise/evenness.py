"""The worst tenant over all tenants: an average that meets a target may hide one that is starved."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputax.advise.intervals import Uncertainty
from gputax.advise.table import Run, Series
from gputax.plan.notices import Notice

RATE = "rate"


@dataclass(frozen=True)
class Spread:
    """How much worse the worst tenant may have it, in logarithms of what all tenants have."""

    at_worst: float
    at_best: float
    uncertainty: Uncertainty
    """Of a new run."""


@dataclass(frozen=True)
class Unevenness:
    """ln(worst tenant / all tenants) of one statistic, by number of tenants; empty where single tenants are unknown."""

    statistic: str
    by_count: Mapping[int, tuple[float, ...]]
    notices: tuple[Notice, ...] = ()

    @property
    def known(self) -> bool:
        """Whether the source tells of single tenants."""
        return bool(self.by_count)

    def at(self, tenants: int) -> Spread:
        """Return it for so many tenants: as measured; between two numbers from one's to the other's; beyond, at worst
        the worst of all.

        It has no form of its own: one tenant is always even, and a tenant that starves does so from some number on.
        """
        if tenants == 1 or not self.by_count:
            return Spread(0.0, 0.0, Uncertainty(()))
        sign = -1.0 if self.statistic == RATE else 1.0
        by_harm = sorted(self._beside(tenants), key=lambda count: sign * float(np.mean(self.by_count[count])))
        values = self.by_count[by_harm[-1]]
        mildest = max(self.by_count) if tenants > max(self.by_count) else by_harm[0]
        freedom = len(values) - 1
        variance = float(np.var(values, ddof=1)) * (1.0 + 1.0 / len(values)) if freedom else 0.0
        return Spread(
            float(np.mean(values)),
            float(np.mean(self.by_count[mildest])),
            Uncertainty(((variance, float(freedom)),) if variance > 0.0 else ()),
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


def unevenness(series: Series, statistic: str) -> Unevenness:
    """Return that of the mean, of a percentile or of the rate, from all runs that tell of single tenants."""
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
    """Return what the worst tenant of a run had: milliseconds, or inferences per second; None: nobody tells.

    A tenant with too few samples for a percentile of its own is known by its mean: the worst one has at least that, or
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
    return run.worst_percentiles_ms.get(statistic, max(of_all, run.worst_mean_ms))


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
        f"with {', '.join(map(str, sorted(counts)))} tenants a single one had too few samples for its {statistic}: "
        "that of all tenants or the worst one's mean stands in, whichever is larger"
    )
    return (Notice("worst-tenant-guessed", text),)
