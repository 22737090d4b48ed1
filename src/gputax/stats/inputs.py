"""Validate arrays before any formula uses them, and name the bad value."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gputax.errors import ResultsError

FloatArray = NDArray[np.float64]
Better = Literal["lower", "higher"]
"""The better direction of a metric: `lower` for latency, `higher` for throughput."""


def finite_values(values: ArrayLike, name: str, *, item: str = "sample") -> FloatArray:
    """Return `values` as a flat array, or say which one is NaN, infinite or negative; zero is allowed."""
    array = _flat(values, name)
    _refuse(array, ~(np.isfinite(array) & (array >= 0)), name, item)
    return array


def positive_values(values: ArrayLike, name: str, *, item: str = "sample") -> FloatArray:
    """Return `values` as a flat float array whose logarithms exist, or say which one has none."""
    array = _flat(values, name)
    _refuse(array, ~(np.isfinite(array) & (array > 0)), name, item)
    return array


def paired_values(a: ArrayLike, b: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return both sides of all pairs, or say what is wrong with which pair."""
    side_a, side_b = positive_values(a, "A", item="pair"), positive_values(b, "B", item="pair")
    if side_a.size != side_b.size:
        raise ResultsError(
            f"A has {side_a.size} values and B has {side_b.size}: they are not pairs",
            next_step="drop the pair whose other half is missing",
        )
    return side_a, side_b


def log_ratios(a: ArrayLike, b: ArrayLike, better: Better = "lower") -> FloatArray:
    """Return ln(B/A) per pair, or ln(A/B) if higher is better, so that positive is always a cost."""
    side_a, side_b = paired_values(a, b)
    logs = np.log(side_b) - np.log(side_a)
    return logs if better == "lower" else -logs


def _flat(values: ArrayLike, name: str) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ResultsError(f"{name} has {array.ndim} dimensions but must be a flat list of numbers")
    if array.size == 0:
        raise ResultsError(f"{name} is empty", next_step="measure again")
    return array


def _refuse(array: FloatArray, bad: NDArray[np.bool_], name: str, item: str) -> None:
    if not bad.any():
        return
    first = int(np.argmax(bad))
    more = int(bad.sum()) - 1
    raise ResultsError(
        f"{name}: {item} {first + 1} of {array.size} is {array[first]:g}"
        + (f", and {more} more are bad" if more else ""),
        next_step=f"drop the {item} and report it, or measure again",
    )
