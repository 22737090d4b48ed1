"""The samples a worker runs on: loaded once, contiguous, with space at the end to gather scattered ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Positions: TypeAlias = Sequence[int] | npt.NDArray[np.int64]


class SampleArea:
    """Rows [0, count) are the samples; rows [count, count + max_batch) are where a scattered batch is gathered.

    A consecutive batch costs nothing (the engine reads it in place); a scattered one costs one copy, as it
    would in a server. Gathering 32 images by a Python loop took 1.45 ms, by one `take` a third of that.
    """

    def __init__(self, inputs: dict[str, npt.NDArray[Any]], max_batch: int) -> None:
        self.count = len(next(iter(inputs.values())))
        self.position_of = np.arange(self.count, dtype=np.int64)
        """Current position of the sample of each index."""
        self.arrays: dict[str, npt.NDArray[Any]] = {}
        for name, values in inputs.items():
            area = np.empty((self.count + max_batch, *values.shape[1:]), dtype=values.dtype)
            area[: self.count] = values
            area[self.count :] = 0
            self.arrays[name] = area

    def gather(self, positions: Positions) -> int:
        """Copy the rows at `positions` to the end area and return where they start there."""
        start, count = self.count, len(positions)
        for area in self.arrays.values():
            # mode="clip" lets numpy write straight into `out`; positions are ours and always in range.
            np.take(area[:start], positions, axis=0, out=area[start : start + count], mode="clip")
        return start

    def reorder(self, indices: Sequence[int]) -> bool:
        """Sort the samples into this order; False if they already are."""
        positions = self.position_of[list(indices)]
        wanted = np.arange(len(positions), dtype=np.int64)
        if np.array_equal(positions, wanted):
            return False
        for area in self.arrays.values():
            area[: len(positions)] = area[positions]
        self.position_of[list(indices)] = wanted
        return True
