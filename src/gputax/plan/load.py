"""The load that a worker applies, with every number decided."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

# The seeds of the MLPerf Inference 6.0 round, from LoadGen's built-in configuration.
QSL_SEED = 2085463073848966840
SAMPLE_INDEX_SEED = 2747215439041700203
SCHEDULE_SEED = 16159082839903944936


@dataclass(frozen=True)
class Load:
    """The load of one `measure` request."""

    scenario: str
    batch_size: int = 1
    min_duration_s: float = 0.0
    min_queries: int = 1
    expected_latency_ns: int = 1_000_000
    """Single- and multi-stream: LoadGen prepares queries for at most twice this speed."""
    expected_qps: float = 1.0
    """Offline: decides how many samples the single query contains."""
    target_qps: float = 1.0
    """Server: the rate of the Poisson arrivals."""
    bound_ns: int = 100_000_000
    percentile: float = 0.99
    max_wait_us: int = 0
    """Server: how long the batcher may delay a query to fill a batch."""
    seed_offset: int = 0
    """Added to the schedule and sample seeds, so that repeats get different arrivals."""
    start_at_ns: int = 0
    """Saturate: wait for this time of the worker's monotonic clock, so that tenants of one machine start together."""

    def to_dict(self) -> dict[str, Any]:
        """Return the load as sent to the worker."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Load:
        """Rebuild a load received over the pipe."""
        return Load(**data)
