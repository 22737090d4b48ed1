"""The metrics that two cells are compared by: name, unit and which direction is better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gputax.errors import unknown_name


@dataclass(frozen=True)
class Metric:
    """One number of a cell."""

    name: str
    title: str
    unit: str
    better: Literal["lower", "higher"]
    percentile: float | None = None
    """For latencies that are a percentile: which one, as a fraction."""


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("throughput", "throughput", "samples/s", "higher"),
        Metric("latency_mean", "mean latency", "ms", "lower"),
        Metric("latency_p50", "p50 latency", "ms", "lower", 0.50),
        Metric("latency_p90", "p90 latency", "ms", "lower", 0.90),
        Metric("latency_p95", "p95 latency", "ms", "lower", 0.95),
        Metric("latency_p99", "p99 latency", "ms", "lower", 0.99),
        Metric("host_to_device", "host-to-device bandwidth", "GB/s", "higher"),
        Metric("device_to_host", "device-to-host bandwidth", "GB/s", "higher"),
    )
}


def metric_named(name: str) -> Metric:
    """Return the metric, or say which names exist."""
    if name not in METRICS:
        raise unknown_name("metric", name, METRICS)
    return METRICS[name]
