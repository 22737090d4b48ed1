"""The metrics of a cell: one row each, with the scenarios in which it is judged, paired or the headline."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from gputax.plan.tokens import ITL, LATENCY, TOKEN_SERIES, TPOT, TTFT
from gputax.plan.workloads import MICRO

Loss = Literal["time", "throughput"]


@dataclass(frozen=True)
class Metric:
    """One number of a cell."""

    name: str
    title: str
    unit: str
    better: Literal["lower", "higher"]
    stored: str
    """The key of a cell in benchmark_results.json that contains it."""
    percentile: float | None = None
    """For latencies that are a percentile: which one, as a fraction."""
    scale: float = 1.0
    """Factor from the stored value to this unit."""
    judged: frozenset[str] = frozenset()
    """The scenarios in which results on disk are judged by it."""
    paired: frozenset[str] = frozenset()
    """The scenarios in which a duet shows it."""
    primary: frozenset[str] = frozenset()
    """The scenarios in which a duet needs it to pass; the others can only fail, unless a budget names them."""
    headline: frozenset[str] = frozenset()
    """The scenarios that are summarised by it."""
    series: str = LATENCY
    """The values of a request that it is about: its latency, or what tokens add (`plan.tokens`)."""

    @property
    def loss(self) -> Loss:
        """How an overhead on it counts: time added, or throughput lost as a share of the base's throughput."""
        return "throughput" if self.better == "higher" else "time"


STREAMS = frozenset({"single-stream", "multi-stream"})
BATCHED = frozenset({"offline", "saturate"})
SERVER = frozenset({"server"})
# Operations are single requests, whatever the loop is called.
OPERATION = frozenset({MICRO})
QUERIES = STREAMS | SERVER
# A server's throughput is the given rate, and the latency of a batch is the inverse of its throughput:
# neither is judged. Offline slots have one number, the time per sample.
# A duet of queries is decided by the median, what a user feels: a few stalls of the host carry the mean.
METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            "throughput", "throughput", "samples/s", "higher", "throughput_samples_per_sec",
            judged=BATCHED | OPERATION, paired=BATCHED, primary=BATCHED, headline=BATCHED,
        ),
        Metric("latency_mean", "mean latency", "ms", "lower", "latency_mean_ms", judged=STREAMS, paired=QUERIES),
        Metric(
            "latency_p50", "p50 latency", "ms", "lower", "latency_p50_ms", 0.50,
            judged=QUERIES | OPERATION, paired=QUERIES | {"saturate"}, primary=QUERIES,
        ),
        Metric(
            "latency_p90", "p90 latency", "ms", "lower", "latency_p90_ms", 0.90,
            judged=QUERIES | OPERATION, paired=QUERIES, headline=frozenset({"single-stream"}),
        ),
        Metric("latency_p95", "p95 latency", "ms", "lower", "latency_p95_ms", 0.95),
        Metric(
            "latency_p99", "p99 latency", "ms", "lower", "latency_p99_ms", 0.99,
            judged=QUERIES | OPERATION, paired=QUERIES, headline=frozenset({"server", "multi-stream"}),
        ),
        Metric(
            "over_bound_share", "queries over the bound", "%", "lower", "over_bound_share", scale=100.0, judged=SERVER
        ),
        # Only cells with tokens have these. As with latencies, a duet is decided by the medians.
        Metric(
            "ttft_p50", "p50 time to first token", "ms", "lower", "ttft_p50_ms", 0.50,
            judged=QUERIES, paired=QUERIES | {"saturate"}, primary=QUERIES, series=TTFT,
        ),
        Metric("ttft_p90", "p90 time to first token", "ms", "lower", "ttft_p90_ms", 0.90, judged=QUERIES, series=TTFT),
        Metric(
            "ttft_p99", "p99 time to first token", "ms", "lower", "ttft_p99_ms", 0.99,
            judged=QUERIES, paired=QUERIES, series=TTFT,
        ),
        Metric(
            "tpot_p50", "p50 time per output token", "ms", "lower", "tpot_p50_ms", 0.50,
            judged=QUERIES, paired=QUERIES | {"saturate"}, primary=QUERIES, series=TPOT,
        ),
        Metric(
            "tpot_p90", "p90 time per output token", "ms", "lower", "tpot_p90_ms", 0.90, judged=QUERIES, series=TPOT
        ),
        Metric(
            "tpot_p99", "p99 time per output token", "ms", "lower", "tpot_p99_ms", 0.99,
            judged=QUERIES, paired=QUERIES, series=TPOT,
        ),
        Metric("itl_p50", "p50 inter-token latency", "ms", "lower", "itl_p50_ms", 0.50, series=ITL),
        Metric(
            "itl_p99", "p99 inter-token latency", "ms", "lower", "itl_p99_ms", 0.99,
            judged=QUERIES, paired=QUERIES, series=ITL,
        ),
        Metric("tokens_per_s", "output tokens", "tokens/s", "higher", "tokens_per_sec", judged=BATCHED, series=TPOT),
        Metric("host_to_device", "host-to-device bandwidth", "GB/s", "higher", "bandwidth_gb_per_s"),
        Metric("device_to_host", "device-to-host bandwidth", "GB/s", "higher", "bandwidth_gb_per_s"),
    )
}  # fmt: skip
OVER_BOUND_SHARE = METRICS["over_bound_share"]
SCENARIOS_JUDGED = frozenset().union(*(metric.judged for metric in METRICS.values()))


def judged_metrics(scenario: str, named: Iterable[str] = (), *, tokens: bool = False) -> tuple[str, ...]:
    """Return the metrics that judge cells of this scenario; an unknown scenario is judged by all of them.

    Other query latencies are judged if a budget `named` them; those of tokens where there are tokens.
    """
    if scenario not in SCENARIOS_JUDGED:
        return tuple(METRICS)
    judged = [
        name
        for name, metric in METRICS.items()
        if scenario in metric.judged and (tokens or metric.series not in TOKEN_SERIES)
    ]
    wanted = ("latency_", *(f"{name}_" for name in TOKEN_SERIES if tokens))
    further = (name for name in named if scenario not in BATCHED and name.startswith(wanted))
    return tuple(dict.fromkeys((*judged, *further)))


def duet_metrics(scenario: str, series: Collection[str] = (LATENCY,)) -> tuple[str, ...]:
    """Return the metrics that a duet of this scenario shows, those that it needs to pass first.

    `series` are the values that its requests have.
    """
    shown = [metric for metric in METRICS.values() if scenario in metric.paired and metric.series in series]
    return tuple(metric.name for metric in sorted(shown, key=lambda metric: scenario not in metric.primary))


def headline_order(scenario: str) -> tuple[str, ...]:
    """Return the metrics that can summarise a cell, in order; the first with a number is used."""
    first = [name for name, metric in METRICS.items() if scenario in metric.headline]
    latencies = [name for name in METRICS if name.startswith("latency_")]
    return tuple(dict.fromkeys((*first, *latencies, *METRICS)))
