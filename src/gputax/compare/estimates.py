"""Both sides' value of one metric and what lies between them, with as much certainty as the sources allow."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gputax.compare.series import NS_PER_MS, NS_PER_S, CellSeries
from gputax.errors import ResultsError
from gputax.plan.metrics import OVER_BOUND_SHARE, Metric
from gputax.stats.estimates import Estimate
from gputax.stats.percentiles import floor_for
from gputax.stats.spreads import Gap, Ratio, mean_spread, percentile_spread, share_spread
from gputax.stats.unpaired import fieller


@dataclass(frozen=True)
class Compared:
    """One metric of two cells; what does not exist is None."""

    base_value: float | None
    other_value: float | None
    overhead_percent: float | None = None
    overhead_absolute: float | None = None
    """In the metric's unit; positive is worse."""
    percent: Estimate | None = None
    absolute: Estimate | None = None
    obstacle: str = ""
    """Why there is no interval, for people; empty where there is one."""
    notices: tuple[str, ...] = ()
    refused: bool = False
    """Whether the obstacle is that a percentile has too few samples."""


class TooFewSamples(ResultsError):
    """A percentile that these samples cannot carry."""


def with_samples(metric: Metric, base: CellSeries, other: CellSeries) -> Compared:
    """Compare a metric by the samples of both sides; an error says why they cannot carry it."""
    if metric.name == "throughput":
        return _throughput(base, other)
    if metric.name == "latency_mean":
        return _mean(base, other)
    if metric.name == OVER_BOUND_SHARE.name:
        return _share(base, other)
    if metric.percentile is not None:
        return _percentile(metric.percentile, base, other)
    raise ResultsError(f"samples do not tell {metric.name}")


def without_samples(metric: Metric, base: float, other: float, obstacle: str) -> Compared:
    """Compare two bare numbers: a difference, but no interval; a ratio with zero does not exist."""
    better_more = metric.better == "higher"
    absolute = base - other if better_more else other - base
    if metric.name == OVER_BOUND_SHARE.name:
        return Compared(base, other, absolute, absolute, obstacle=obstacle)
    numerator, denominator = (base, other) if better_more else (other, base)
    if base == 0.0 or denominator == 0.0:
        side = "base" if base == 0.0 else "other side"
        why = f"the {side} is zero: there is no ratio" + (f"; {obstacle}" if obstacle else "")
        return Compared(base, other, None, absolute, obstacle=why)
    return Compared(base, other, 100.0 * (numerator / denominator - 1.0), absolute, obstacle=obstacle)


def _throughput(base: CellSeries, other: CellSeries) -> Compared:
    estimate = fieller(base.time_per_sample_ns, other.time_per_sample_ns)
    rates = [NS_PER_S / float(series.time_per_sample_ns.mean()) for series in (base, other)]
    return Compared(
        rates[0], rates[1], estimate.value, rates[0] - rates[1], percent=estimate, notices=estimate.notices[1:]
    )


def _mean(base: CellSeries, other: CellSeries) -> Compared:
    estimate = fieller(base.latency_ns, other.latency_ns)
    spreads = [mean_spread(series.latency_ns, 1.0 / NS_PER_MS) for series in (base, other)]
    gap = Gap(spreads[0], spreads[1], "ms")
    return Compared(
        gap.base.value, gap.other.value, estimate.value, gap.value, estimate, gap, notices=estimate.notices[1:]
    )


def _percentile(p: float, base: CellSeries, other: CellSeries) -> Compared:
    floor = floor_for(p)
    counts = (base.latency_ns.size, other.latency_ns.size)
    if min(counts) < floor:
        raise TooFewSamples(f"p{100 * p:g} needs {floor} samples on each side, there are {counts[0]} and {counts[1]}")
    spreads = [percentile_spread(side.latency_ns, side.ordered_ns, p, 1.0 / NS_PER_MS) for side in (base, other)]
    ratio, gap = Ratio(spreads[0], spreads[1]), Gap(spreads[0], spreads[1], "ms")
    return Compared(gap.base.value, gap.other.value, ratio.value, gap.value, ratio, gap)


def _share(base: CellSeries, other: CellSeries) -> Compared:
    if base.bound_ms is None or other.bound_ms is None:
        raise ResultsError("the source names no latency bound")
    late = [(side.latency_ns > (side.bound_ms or math.inf) * NS_PER_MS).astype(np.float64) for side in (base, other)]
    gap = Gap(share_spread(late[0]), share_spread(late[1]), "%")
    # Percentage points are both: the unit of the metric and of its budget.
    return Compared(gap.base.value, gap.other.value, gap.value, gap.value, gap, gap)
