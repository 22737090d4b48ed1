"""The samples of one cell as the statistics take them, and the metrics that they can carry."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gputax.errors import ResultsError
from gputax.results.importers.source import CellSamples
from gputax.stats.inputs import FloatArray

NS_PER_MS = 1e6
NS_PER_S = 1e9


@dataclass(frozen=True)
class CellSeries:
    """Latencies in the order of measurement, and the time that each sample took from the run as a whole."""

    latency_ns: FloatArray
    time_per_sample_ns: FloatArray
    """One per row; their mean is exactly the run's time over its samples, that is one over the throughput."""
    bound_ms: float | None = None
    """Server: above this a query is late."""

    @cached_property
    def ordered_ns(self) -> FloatArray:
        """The latencies sorted, once for all percentiles."""
        return np.sort(self.latency_ns)


def cell_series(samples: CellSamples, bound_ms: float | None) -> CellSeries:
    """Return the series, or say how many samples cannot be true."""
    latency_ns = samples.latency_ns
    bad = int(np.count_nonzero(latency_ns <= 0))
    if bad:
        raise ResultsError(f"{bad} of {latency_ns.size} samples have a latency of zero or less")
    if int(samples.samples.min()) < 1:
        raise ResultsError("some rows hold no sample at all")
    ends = np.sort(samples.end_ns)
    gaps = np.diff(ends, prepend=samples.begin_ns.min()).astype(np.float64)
    # Rows may hold unequal batches, so the gaps are scaled by the mean batch and not each by its own.
    per_sample = gaps * (latency_ns.size / float(samples.samples.sum()))
    return CellSeries(latency_ns.astype(np.float64), per_sample, bound_ms)
