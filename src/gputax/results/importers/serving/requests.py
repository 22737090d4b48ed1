"""The requests of one run of a load generator: their times, as figures and as samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gputax.plan.metrics import METRICS
from gputax.plan.tokens import ITL, LATENCY, TPOT, TTFT
from gputax.results.importers.source import CellSamples
from gputax.stats.percentiles import percentile

NS_PER_S = 1e9
NS_PER_MS = 1e6


@dataclass(frozen=True)
class Request:
    """One successful request; times in seconds, and None where the file has none."""

    start_s: float | None
    """On any clock, the same for all requests of a run."""
    latency_s: float
    ttft_s: float | None = None
    tpot_s: float | None = None
    """The first token excluded."""
    tokens: int | None = None
    gaps_s: tuple[float, ...] = ()
    """Each time between two chunks."""

    @property
    def possible(self) -> bool:
        """Whether all of its times are finite, and none is negative."""
        times = (self.start_s, self.latency_s, self.ttft_s, self.tpot_s, *self.gaps_s)
        return (
            all(each is None or math.isfinite(each) for each in times)
            and min(self.latency_s, self.ttft_s or 0.0, self.tpot_s or 0.0, *self.gaps_s) >= 0.0 < self.latency_s
        )


def per_token(latency_s: float, ttft_s: float | None, tokens: int | None) -> float | None:
    """Return the time per output token without the first; None with fewer than two tokens."""
    return None if ttft_s is None or tokens is None or tokens < 2 else (latency_s - ttft_s) / (tokens - 1)


@dataclass(frozen=True)
class Requests:
    """The successful requests of a run, in the order of their start, with possible times only."""

    requests: tuple[Request, ...]
    impossible: int = 0
    """How many were left out because a time is negative or not a number."""
    series_ns: dict[str, npt.NDArray[np.float64]] = field(default_factory=dict)

    @classmethod
    def of(cls, found: Sequence[Request]) -> Requests:
        """Return the requests sorted, with their series."""
        good = [each for each in found if each.possible]
        if all(each.start_s is not None for each in good):
            good.sort(key=lambda each: each.start_s or 0.0)
        times = {
            LATENCY: [each.latency_s for each in good],
            TTFT: [each.ttft_s for each in good if each.ttft_s],
            TPOT: [each.tpot_s for each in good if each.tpot_s],
            # What one read brought was there at one moment; the statistics take logarithms.
            ITL: [max(gap, 1e-9) for each in good for gap in each.gaps_s],
        }
        series = {name: np.asarray(values, dtype=np.float64) * NS_PER_S for name, values in times.items() if values}
        return cls(tuple(good), len(found) - len(good), series)

    def figures(self) -> dict[str, float]:
        """Return every metric that can be computed, in its unit; a percentile below its floor is missing."""
        found: dict[str, float] = {}
        for metric in METRICS.values():
            values = self.series_ns.get(metric.series)
            value = percentile(values, metric.percentile) if metric.percentile and values is not None else None
            if value is not None:
                found[metric.name] = value / NS_PER_MS
        if self.requests:
            found["latency_mean"] = float(self.series_ns[LATENCY].mean()) / NS_PER_MS
        duration_s = self.duration_s
        if duration_s:
            found["throughput"] = len(self.requests) / duration_s
            if all(each.tokens is not None for each in self.requests):
                found["tokens_per_s"] = sum(each.tokens or 0 for each in self.requests) / duration_s
        return found

    @property
    def duration_s(self) -> float | None:
        """From the first start to the last end; None if the starts are not known."""
        starts = [each.start_s for each in self.requests if each.start_s is not None]
        if not starts or len(starts) != len(self.requests):
            return None
        return max((each.start_s or 0.0) + each.latency_s for each in self.requests) - min(starts)

    def samples(self) -> CellSamples | None:
        """Return the requests as samples; None if their starts are not known, so that nothing is in order."""
        if self.duration_s is None:
            return None
        origin = self.requests[0].start_s or 0.0
        begin = np.array([((each.start_s or 0.0) - origin) * NS_PER_S for each in self.requests]).astype(np.int64)
        latency = self.series_ns[LATENCY].astype(np.int64)
        ones = np.ones(len(self.requests), dtype=np.int64)
        return CellSamples(begin, begin + latency, ones, {name: self.series_ns[name] for name in self.series_ns})
