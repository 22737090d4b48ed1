"""The run record: `benchmark_results.json`, with the keys that users already have and what makes a number checkable."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from gputax.plan.cells import repetition_name
from gputax.results.documents.base import DISTURBED, Document, Failure, WarningRecord

RECORD_NAME = "benchmark_results.json"


class GpuInfo(Document):
    """The device, under the keys of the older files. Without a GPU the name says so."""

    name: str
    cuda_version: str | None = None
    total_memory_gb: float | None = None


class LoadGenVerdict(Document):
    """LoadGen's own judgement and figures, from its detail log."""

    version: str | None = None
    valid: bool
    invalid_reasons: tuple[str, ...] = ()
    metrics: dict[str, float] = Field(default_factory=dict)
    errors: int = 0


class RateAttempt(Document):
    """One server rate that was tried, whether it held or not: nothing is measured until it fits and then forgotten."""

    rate_per_s: float
    kind: Literal["probe", "measurement"]
    held: bool
    over_bound_share: float


class Benchmark(Document):
    """One measured cell."""

    scenario: str = Field(description="offline, server, single_stream, multi_stream or saturate")
    batch_size: int
    throughput_samples_per_sec: float
    duration_sec: float
    latency_p90_ms: float | None = Field(default=None, description="null below the sample floor (64)")
    latency_p95_ms: float | None = Field(default=None, description="null below the sample floor (130)")
    latency_p99_ms: float | None = Field(default=None, description="null below the sample floor (662)")

    cell: str
    workload: str
    environment: str
    tenants: int = 1
    device: str
    engine: str
    provider: str
    precision: str
    threads: int
    weights: str = Field(description="seeded, official or a file of the user's")
    weights_sha256: str | None = None
    claim: str = Field(description="what this number may be called")
    latency_mean_ms: float
    latency_p50_ms: float | None = None
    latency_min_ms: float
    latency_max_ms: float
    queries: int
    samples: int
    mean_batch_size: float
    target_qps: float | None = None
    latency_bound_ms: float | None = None
    latency_bound_source: str | None = None
    judged_percentile: float | None = None
    over_bound_share: float | None = None
    rate_source: str | None = Field(default=None, description="server: who chose the rate, and from what")
    attempts: tuple[RateAttempt, ...] = Field(default=(), description="server: every rate that was tried, in order")
    throughput_half_width_percent: float | None = Field(
        default=None, description="half of the 95 % interval within this run; another run may differ by more"
    )
    tokens: int | None = Field(default=None, description="output tokens of successful requests; null without tokens")
    tokens_per_sec: float | None = None
    ttft_p50_ms: float | None = Field(default=None, description="time to first token; token_definitions says from when")
    ttft_p90_ms: float | None = None
    ttft_p99_ms: float | None = None
    tpot_p50_ms: float | None = Field(default=None, description="time per output token of a request, first excluded")
    tpot_p90_ms: float | None = None
    tpot_p99_ms: float | None = None
    itl_p50_ms: float | None = Field(default=None, description="inter-token latency: single gaps")
    itl_p99_ms: float | None = None
    token_definitions: dict[str, str] = Field(
        default_factory=dict, description="what ttft, tpot and itl mean here: clock start, token or chunk, who counted"
    )
    tokens_file: str | None = Field(default=None, description="the time of every token or chunk, if it was recorded")
    failed_requests: int | None = Field(
        default=None, description="of a server; they are in no latency; null: cannot fail"
    )
    error_rate: float | None = Field(default=None, description="failed requests over all; beyond the bound: invalid")
    error_bound: float | None = None
    goodput_per_sec: float | None = Field(
        default=None, description="successful requests per second that kept every bound of goodput_bounds"
    )
    goodput_bounds: dict[str, float] = Field(default_factory=dict, description="in ms: latency, ttft, tpot")
    bytes_per_run: int | None = Field(default=None, description="micro's copies: what one run moves")
    bandwidth_gb_per_s: float | None = Field(default=None, description="bytes_per_run over the mean run, 10^9 bytes")
    joules_per_sample: float | None = Field(
        default=None, description="energy of the whole device during the load over its samples; null: not counted"
    )
    evidence: dict[str, Any] = Field(
        default_factory=dict, description="what proved that the environment's layers were active, after this cell"
    )
    repeat: int = Field(default=1, description="the repeats of a cell share its name; each had a new worker")
    session: int = Field(default=1, description="which start of the command measured it; more than 1 after a resume")
    loadgen: LoadGenVerdict | None = None
    valid: bool
    disturbed: tuple[str, ...] = Field(default=(), description=DISTURBED)
    load: dict[str, Any]
    started_at: str
    warmup_s: float
    samples_file: str
    logs_dir: str | None = None
    telemetry_file: str
    warnings: tuple[WarningRecord, ...] = ()

    @property
    def name(self) -> str:
        """The name of this measurement: the cell's, and from the second repeat on its number."""
        return repetition_name(self.cell, self.repeat)


class RepeatedBenchmark(Benchmark):
    """The mean over the repeats of a cell, for display; the record has each of them."""

    repeats: int


def mean_of_repeats(measured: Sequence[Benchmark]) -> RepeatedBenchmark:
    """Return the means over the repeats; a throughput's is that of the totals, one over the mean time per sample."""
    first = measured[0]
    means = {name: _mean([getattr(each, name) for each in measured]) for name in _AVERAGED}
    times = [1.0 / each.throughput_samples_per_sec for each in measured if each.throughput_samples_per_sec > 0.0]
    warnings = dict.fromkeys(warning for each in measured for warning in each.warnings)
    invalid = next((each for each in measured if not each.valid), first)
    disturbed = [each.disturbed for each in measured if each.disturbed]
    share = f"{len(disturbed)} of {len(measured)} repeats"
    bandwidth = first.bytes_per_run / (1e6 * means["latency_mean_ms"]) if first.bytes_per_run else None
    values = dict(first) | means
    values |= {
        "throughput_samples_per_sec": len(times) / sum(times) if len(times) == len(measured) else 0.0,
        "throughput_half_width_percent": _half_width_percent(times) if len(times) == len(measured) else None,
        "bandwidth_gb_per_s": bandwidth,
        "duration_sec": sum(each.duration_sec for each in measured),
        "latency_min_ms": min(each.latency_min_ms for each in measured),
        "latency_max_ms": max(each.latency_max_ms for each in measured),
        "queries": sum(each.queries for each in measured),
        "samples": sum(each.samples for each in measured),
        "valid": all(each.valid for each in measured),
        "disturbed": (f"{share}: {'; '.join(disturbed[0])}",) if disturbed else (),
        "loadgen": invalid.loadgen,
        "evidence": invalid.evidence,
        "warnings": tuple(warnings),
        "repeats": len(measured),
    }
    return RepeatedBenchmark.model_construct(**values)


_AVERAGED = (
    "latency_mean_ms", "latency_p50_ms", "latency_p90_ms", "latency_p95_ms", "latency_p99_ms", "mean_batch_size",
    "over_bound_share", "warmup_s", "joules_per_sample", "tokens_per_sec", "ttft_p50_ms", "ttft_p90_ms", "ttft_p99_ms",
    "tpot_p50_ms", "tpot_p90_ms", "tpot_p99_ms", "itl_p50_ms", "itl_p99_ms",
)  # fmt: skip


def _mean(values: Sequence[float | None]) -> Any:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def _half_width_percent(values: Sequence[float]) -> float:
    """Return half of the 95 % interval of the mean by t over the repeats, in percent of it."""
    from gputax.stats.estimates import t_quantile

    mean = sum(values) / len(values)
    sd = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return 100.0 * t_quantile(0.975, len(values) - 1.0) * sd / math.sqrt(len(values)) / mean


class RunRecord(Document):
    """One result directory."""

    schema_version: Literal[1] = 1
    gputax_version: str
    timestamp: str
    complete: bool
    sessions: tuple[str, ...] = Field(default=(), description="when the command was started: more than once if resumed")
    plan_id: str
    cells_planned: tuple[str, ...]
    plan: tuple[dict[str, Any], ...] = Field(
        default=(), description="the cells with all their options, for `gputax run --like`; empty before version 0.3"
    )
    environment: str
    device: str | None = None
    device_label: str = Field(description="the label that every table and chart of these numbers carries")
    gpu_info: GpuInfo
    fingerprint: dict[str, Any] = Field(default_factory=dict)
    evidence: dict[str, Any] = Field(default_factory=dict)
    benchmarks: tuple[Benchmark, ...] = ()
    failures: tuple[Failure, ...] = ()
    warnings: tuple[WarningRecord, ...] = ()

    @property
    def cells(self) -> tuple[Benchmark, ...]:
        """One entry per cell: as it was measured, or the mean over its repeats."""
        groups: dict[str, list[Benchmark]] = {}
        for benchmark in self.benchmarks:
            groups.setdefault(benchmark.cell, []).append(benchmark)
        return tuple(group[0] if len(group) == 1 else mean_of_repeats(group) for group in groups.values())
