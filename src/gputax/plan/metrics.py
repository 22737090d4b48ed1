"""The metrics that two cells are compared by: name, unit and which direction is better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Metric:
    """One number of a cell."""

    name: str
    title: str
    unit: str
    better: Literal["lower", "higher"]
    percentile: float | None = None
    """For latencies that are a percentile: which one, as a fraction."""


OVER_BOUND_SHARE = Metric("over_bound_share", "queries over the bound", "%", "lower")
METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("throughput", "throughput", "samples/s", "higher"),
        Metric("latency_mean", "mean latency", "ms", "lower"),
        Metric("latency_p50", "p50 latency", "ms", "lower", 0.50),
        Metric("latency_p90", "p90 latency", "ms", "lower", 0.90),
        Metric("latency_p95", "p95 latency", "ms", "lower", 0.95),
        Metric("latency_p99", "p99 latency", "ms", "lower", 0.99),
        OVER_BOUND_SHARE,
        Metric("host_to_device", "host-to-device bandwidth", "GB/s", "higher"),
        Metric("device_to_host", "device-to-host bandwidth", "GB/s", "higher"),
    )
}
