"""Percentiles by LoadGen's convention, refused below their sample floor, with distribution-free intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from gputax.errors import UsageError
from gputax.stats.estimates import binomial_quantile
from gputax.stats.inputs import FloatArray, finite_values

PERCENTILES: tuple[float, ...] = (0.50, 0.90, 0.95, 0.97, 0.99, 0.999)
SMALLEST_FLOOR = 10
EARLY_STOPPING_RISK = 0.01


@dataclass(frozen=True)
class PercentileRow:
    """One percentile of a run; values are None if there are too few samples."""

    p: float
    floor: int
    value_ns: float | None
    ci95_ns: tuple[float, float] | None


@dataclass(frozen=True)
class PercentileTable:
    """The results of one sort of the latencies."""

    count: int
    mean_ns: float
    min_ns: float
    max_ns: float
    rows: tuple[PercentileRow, ...]


def floor_for(p: float) -> int:
    """Return how many samples percentile p needs: LoadGen's early stopping with one query over the bound.

    That is the smallest n with P[Binomial(n, 1-p) <= 1] <= 0.01: p90 64, p95 130, p97 219, p99 662,
    p99.9 6636. The median's 10 is ours. A low percentile needs as many as its mirror image.
    """
    _check_fraction(p)
    rarer_side = 1.0 - p if p >= 0.5 else p
    if rarer_side == 0.5:
        return SMALLEST_FLOOR
    low, high = 1, 2
    while _at_most_one_rare(high, rarer_side) > EARLY_STOPPING_RISK:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if _at_most_one_rare(middle, rarer_side) > EARLY_STOPPING_RISK:
            low = middle
        else:
            high = middle
    return max(high, SMALLEST_FLOOR)


def percentile(latency_ns: ArrayLike, p: float) -> float | None:
    """Return sorted[int(n*p)] as LoadGen does, without interpolation; None below the floor of p."""
    _check_fraction(p)
    values = finite_values(latency_ns, "latency")
    if values.size < floor_for(p):
        return None
    rank = int(values.size * p)
    return float(np.partition(values, rank)[rank])


def percentile_interval_ns(sorted_ns: FloatArray, p: float, confidence: float = 0.95) -> tuple[float, float] | None:
    """Return the order statistics that enclose the true percentile with at least this confidence.

    No shape is assumed, but independence is: requests of one run are correlated, so between runs use `overheads`.
    None if even the extremes are not wide enough (two-sided 95 %: p90 below 36 samples, p99 below 368).
    """
    count = sorted_ns.size
    tail = (1.0 - confidence) / 2.0
    low_rank = binomial_quantile(tail, count, p)
    high_rank = binomial_quantile(1.0 - tail, count, p) + 1
    if low_rank < 1 or high_rank > count:
        return None
    return float(sorted_ns[low_rank - 1]), float(sorted_ns[high_rank - 1])


def percentile_table(latency_ns: ArrayLike, percentiles: tuple[float, ...] = PERCENTILES) -> PercentileTable:
    """Return all percentiles from one sort (a million samples: about 30 ms)."""
    ordered = np.sort(finite_values(latency_ns, "latency"))
    return PercentileTable(
        count=int(ordered.size),
        mean_ns=float(ordered.mean()),
        min_ns=float(ordered[0]),
        max_ns=float(ordered[-1]),
        rows=tuple(_row(ordered, p) for p in percentiles),
    )


def _row(ordered: FloatArray, p: float) -> PercentileRow:
    floor = floor_for(p)
    if ordered.size < floor:
        return PercentileRow(p, floor, None, None)
    return PercentileRow(p, floor, float(ordered[int(ordered.size * p)]), percentile_interval_ns(ordered, p))


def _at_most_one_rare(count: int, rare: float) -> float:
    common = 1.0 - rare
    return float(common**count + count * rare * common ** (count - 1))


def _check_fraction(p: float) -> None:
    if not 0.0 < p < 1.0:
        raise UsageError(f"percentile {p:g} is not between 0 and 1", next_step="write p99 as 0.99")
