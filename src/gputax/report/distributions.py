"""From a cell's samples to what its charts draw: a few hundred points, however many samples there are; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gputax.errors import ResultsError
from gputax.stats.inputs import finite_values
from gputax.stats.percentiles import SMALLEST_FLOOR, floor_for
from gputax.stats.series import series_mean

Columns = Mapping[str, npt.NDArray[np.int64]]
# A curve of 480 pixels shows no more, and twenty cells of them stay far below the page's 2 MB.
CURVE_POINTS = 240
# As many blocks as a mean's own batches, and too few below five: t with 3 degrees of freedom is a guess.
RATE_BLOCKS = 50
FEWEST_BLOCKS = 5


@dataclass(frozen=True)
class Curve:
    """Latency by percentile, as far out as the number of samples lets anybody say."""

    fractions: tuple[float, ...]
    latency_ms: tuple[float, ...]
    count: int


@dataclass(frozen=True)
class CellShape:
    """What the samples of one cell tell beyond its figures."""

    curve: Curve | None
    rate_ci95: tuple[float, float] | None
    """Of the throughput, in samples per second."""


def cell_shape(scenario: str, columns: Columns) -> CellShape:
    """Return the curve and the interval of the throughput, or say what is wrong with the samples."""
    begin_name = "scheduled_ns" if scenario == "server" else "start_ns"
    _check(columns, (begin_name, "end_ns") if scenario == "server" else (begin_name, "end_ns", "samples"))
    if len(columns["end_ns"]) == 0:
        return CellShape(None, None)
    latency_ns = finite_values(columns["end_ns"] - columns[begin_name], "latency")
    counts = np.ones(len(latency_ns)) if scenario == "server" else columns["samples"].astype(np.float64)
    return CellShape(latency_curve(latency_ns), rate_interval(columns[begin_name], columns["end_ns"], counts))


def pooled_curve(scenario: str, repeats: Iterable[Columns]) -> Curve | None:
    """Return the curve over the requests of all repeats of a cell, whose samples `cell_shape` accepts."""
    begin_name = "scheduled_ns" if scenario == "server" else "start_ns"
    parts = [finite_values(each["end_ns"] - each[begin_name], "latency") for each in repeats if len(each["end_ns"])]
    return latency_curve(np.concatenate(parts)) if parts else None


def duet_curve(columns: Columns) -> Curve | None:
    """Return the curve of one side of a duet, over all its pairs."""
    _check(columns, ("latency_ns",))
    if len(columns["latency_ns"]) == 0:
        return None
    return latency_curve(finite_values(columns["latency_ns"], "latency"))


def _check(columns: Columns, wanted: Iterable[str]) -> None:
    for name in wanted:
        if name not in columns:
            raise ResultsError(f"the samples have no column {name}")
        if columns[name].dtype.kind not in "iu":
            raise ResultsError(f"the samples' column {name} does not hold whole numbers")


def latency_curve(latency_ns: npt.NDArray[np.float64]) -> Curve | None:
    """Return the curve by LoadGen's convention, sorted[int(n*p)]; None below the median's floor."""
    count = latency_ns.size
    if count < SMALLEST_FLOOR:
        return None
    ordered = np.sort(latency_ns)
    # Even steps on the axis of nines: the tail has as many points as the middle.
    fractions = 1.0 - np.logspace(0.0, np.log10(1.0 - furthest_fraction(count)), CURVE_POINTS)
    fractions = np.clip(fractions, 0.0, 1.0)
    ranks, first = np.unique((count * fractions).astype(np.int64), return_index=True)
    return Curve(
        tuple(float(value) for value in fractions[first]),
        tuple(float(value) / 1e6 for value in ordered[np.minimum(ranks, count - 1)]),
        int(count),
    )


def furthest_fraction(count: int) -> float:
    """Return the highest percentile whose sample floor is met."""
    low, high = 0.5, 1.0 - 1e-7
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if floor_for(middle) <= count else (low, middle)
    return low


def rate_interval(
    begin_ns: npt.NDArray[np.int64], end_ns: npt.NDArray[np.int64], counts: npt.NDArray[np.float64]
) -> tuple[float, float] | None:
    """Return the 95 % interval of samples per second, from the time per sample in blocks of one run.

    It holds what varied within this run. What a second run would change is not in it.
    """
    order = np.argsort(end_ns, kind="stable")
    blocks = min(RATE_BLOCKS, len(order))
    if blocks < FEWEST_BLOCKS:
        return None
    starts = np.arange(blocks) * len(order) // blocks
    block_ends = end_ns[order][np.append(starts[1:], len(order)) - 1]
    seconds = np.diff(block_ends, prepend=begin_ns.min()) / 1e9
    samples = np.add.reduceat(counts[order], starts)
    if np.any(samples <= 0) or np.any(seconds <= 0):
        return None
    low, high = series_mean(seconds / samples).one_sided(0.025)
    return (1.0 / high, 1.0 / low) if low > 0 else None
