"""Turn measured cells into the run record, and operations into the text that users know; pure."""

from __future__ import annotations

import dataclasses
from typing import Any

from gputax import __version__
from gputax.environments.environment import Described, Evidence
from gputax.measure.energy import energy_j
from gputax.measure.fingerprint import claim_of, device_name_of, engine_of, host_of, notices_of
from gputax.measure.goodput import goodput_bounds, kept_bounds
from gputax.measure.run.cell import Measured
from gputax.plan.cells import Cell, repetition_name
from gputax.plan.claims import device_label
from gputax.plan.own_program import DEVICE as PROGRAM_DEVICE
from gputax.plan.servers import DEVICE as SERVER_DEVICE
from gputax.plan.servers import ERROR_BOUND
from gputax.plan.tokens import TOKEN_TIME, TokenDefinitions
from gputax.plan.workloads import OPERATIONS, is_micro
from gputax.results.columns import STATUS
from gputax.results.documents.base import with_notices
from gputax.results.documents.run import Benchmark, GpuInfo, LoadGenVerdict, RateAttempt, RunRecord
from gputax.text import digits


def empty_record(cells: tuple[Cell, ...], plan: str, timestamp: str) -> RunRecord:
    """Return the record of a run that has measured nothing yet."""
    return RunRecord(
        gputax_version=__version__,
        timestamp=timestamp,
        complete=False,
        plan_id=plan,
        cells_planned=tuple(cell.id for cell in cells),
        plan=plan_of(cells),
        environment=cells[0].environment,
        device_label="nothing measured yet",
        gpu_info=GpuInfo(name="nothing measured yet"),
    )


def plan_of(cells: tuple[Cell, ...]) -> tuple[dict[str, Any], ...]:
    """Return the plan as it is stored, for a later run like this one."""
    return tuple(cell.to_dict() for cell in cells)


def described_record(record: RunRecord, described: Described, facts: dict[str, Any], evidence: Evidence) -> RunRecord:
    """Add the worker's description of its place, device and engine."""
    device, gpus = str(facts["device"]), described.gpus
    name = device_name_of(described, facts)
    return record.model_copy(
        update={
            "device": device,
            "device_label": device_label(device, name),
            "gpu_info": _gpu_info(device, name, gpus[0] if gpus else {}),
            "evidence": evidence.to_dict(),
            "fingerprint": {
                "host": host_of(described),
                "cpu_allowance": described.cpu_allowance,
                "gpus": gpus,
                "packages": described.packages,
                "setups": {**record.fingerprint.get("setups", {}), str(facts["workload"]): engine_of(facts)},
            },
            "warnings": with_notices(record.warnings, notices_of(facts)),
        }
    )


def benchmark_document(
    measured: Measured, facts: dict[str, Any], started_at: str, session: int, repeat: int = 1
) -> Benchmark:
    """Return the record of one cell."""
    cell, figures, load = measured.cell, measured.figures, measured.observation.load
    name = repetition_name(cell.id, repeat)
    is_server = cell.scenario == "server"
    bytes_per_run = int(facts.get("bytes_per_run", 0)) * cell.batch_size
    return Benchmark(
        scenario=cell.scenario.replace("-", "_"),
        batch_size=cell.batch_size,
        throughput_samples_per_sec=figures.throughput_per_s,
        duration_sec=figures.duration_s,
        latency_p90_ms=figures.ms("p90"),
        latency_p95_ms=figures.ms("p95"),
        latency_p99_ms=figures.ms("p99"),
        cell=cell.id,
        workload=cell.setup.workload,
        environment=cell.environment,
        tenants=cell.tenants,
        device=str(facts["device"]),
        engine=cell.setup.engine,
        provider=str(facts["provider"]),
        precision=str(facts["precision"]),
        threads=int(facts["threads"]),
        weights=str(facts.get("weights", "none")),
        weights_sha256=facts.get("weights_sha256"),
        claim=claim_of(cell.setup.workload, cell.scenario, cell.setup.engine, facts, official=cell.load.official),
        latency_mean_ms=figures.mean_ns / 1e6,
        latency_p50_ms=figures.ms("p50"),
        latency_min_ms=figures.min_ns / 1e6,
        latency_max_ms=figures.max_ns / 1e6,
        queries=figures.queries,
        samples=figures.samples,
        mean_batch_size=figures.mean_batch,
        target_qps=load.target_qps if is_server else None,
        latency_bound_ms=measured.bound.ms if measured.bound else None,
        latency_bound_source=measured.bound.source if measured.bound else None,
        judged_percentile=load.percentile if cell.scenario not in ("offline", "saturate") else None,
        over_bound_share=measured.over_bound_share,
        loadgen=_verdict(measured),
        valid=measured.valid,
        disturbed=measured.disturbed,
        rate_source=measured.rate_source or None,
        attempts=tuple(RateAttempt(**dataclasses.asdict(each)) for each in measured.attempts),
        throughput_half_width_percent=figures.throughput_half_width_percent,
        **(figures.tokens.record() if figures.tokens else {}),
        token_definitions=_definitions(cell.scenario, facts) if figures.tokens else {},
        tokens_file=f"samples/{name}-tokens.parquet" if TOKEN_TIME in measured.observation.columns else None,
        **_served(measured, facts),
        bytes_per_run=bytes_per_run or None,
        bandwidth_gb_per_s=bytes_per_run / figures.mean_ns if bytes_per_run else None,
        joules_per_sample=_joules_per_sample(measured),
        evidence=measured.evidence.to_dict(),
        repeat=repeat,
        session=session,
        load={**load.to_dict(), "official": cell.load.official},
        started_at=started_at,
        warmup_s=measured.warmup_s,
        samples_file=f"samples/{name}.parquet",
        logs_dir=f"cells/{name}" if measured.log else None,
        telemetry_file=f"cells/{name}/telemetry.json",
        warnings=with_notices((), list(measured.notices)),
    )


def _definitions(scenario: str, facts: dict[str, Any]) -> dict[str, str]:
    """Return what the token metrics mean: a server's requests have a schedule, all others start when they are sent."""
    counted = facts.get("tokens_counted", {})
    return TokenDefinitions(
        "scheduled" if scenario == "server" else "sent", counted.get("unit", "token"), counted.get("by", "engine")
    ).to_dict()


def _served(measured: Measured, facts: dict[str, Any]) -> dict[str, Any]:
    """Return what only requests to a server have: failures, and the requests that kept every bound."""
    columns, figures = measured.observation.columns, measured.figures
    if STATUS not in columns:
        return {}
    bounds = goodput_bounds(measured.bound.ms if measured.bound else 0.0, facts.get("options", {}))
    good = kept_bounds(measured.cell.scenario, columns, bounds)
    return {
        "failed_requests": figures.failed,
        "error_rate": figures.failed / (figures.failed + figures.queries),
        "error_bound": ERROR_BOUND,
        "goodput_per_sec": good / figures.duration_s if bounds and figures.duration_s > 0 else None,
        "goodput_bounds": bounds,
    }


def _joules_per_sample(measured: Measured) -> float | None:
    energy, samples = energy_j(measured.observation.telemetry), measured.figures.samples
    return None if energy is None or not samples else energy / samples


def _verdict(measured: Measured) -> LoadGenVerdict | None:
    log = measured.log
    if log is None:
        return None
    return LoadGenVerdict(
        version=log.version,
        valid=log.valid,
        invalid_reasons=log.invalid_reasons,
        metrics=log.metrics,
        errors=log.errors,
    )


def _gpu_info(device: str, name: str, gpu: dict[str, Any]) -> GpuInfo:
    if device in (PROGRAM_DEVICE, SERVER_DEVICE):
        return GpuInfo(name=f"not known: {name}")
    if device != "cuda":
        return GpuInfo(name=f"no GPU used: {name}")
    memory = gpu.get("memory_total_mb")
    return GpuInfo(
        name=name,
        cuda_version=gpu.get("cuda_driver_version"),
        total_memory_gb=None if memory is None else round(float(memory) / 1024, 2),
    )


MICRO_TEXT = "micro_results.txt"
MICRO_HEADINGS = ("operation", "ops/sec", "mean us", "p50 us", "p90 us", "p99 us", "GB/s", "runs")


def micro_text(record: RunRecord) -> str:
    """Return the operations in the users' own format, which `gputax compare` can read; empty if none was measured.

    The key metrics are one unnamed cell, as in the users' own files. The table of all operations below is for reading:
    invalid ones are listed without a number, and the record next to it has every number.
    """
    measured = [benchmark for benchmark in record.cells if is_micro(benchmark.workload)]
    if not measured:
        return ""
    lines = [
        "GPU benchmark of the driver's operations, by gputax",
        f"Device: {record.gpu_info.name.removeprefix('no GPU used: ')}",
        f"Environment: {record.environment}, on {record.device_label}",
        f"Date: {record.timestamp}",
        "",
        *_key_metrics({benchmark.workload: benchmark for benchmark in measured if benchmark.valid}),
        "All operations",
        _text_row(MICRO_HEADINGS),
        *(_text_row(_text_cells(benchmark)) for benchmark in measured),
    ]
    return "\n".join(lines) + "\n"


def _key_metrics(valid: dict[str, Benchmark]) -> list[str]:
    lines: list[str] = []
    operation = valid.get("micro:operation")
    if operation is not None:
        percentiles = (("p50", operation.latency_p50_ms), ("p99", operation.latency_p99_ms))
        lines += [
            f"- Throughput: {operation.throughput_samples_per_sec:,.1f} ops/sec",
            f"- Average Latency: {operation.latency_mean_ms:.6f} ms",
            *(f"- {name} Latency: {value:.6f} ms" for name, value in percentiles if value is not None),
        ]
    copies = [(valid.get(f"micro:{kind}-100MB"), short) for kind, short in (("copy-in", "H2D"), ("copy-out", "D2H"))]
    rates = [(each.bandwidth_gb_per_s, short) for each, short in copies if each is not None]
    known = [f"{digits(rate, 4)} GB/s ({short})" for rate, short in rates if rate is not None]
    lines += [f"- Memory Bandwidth: {', '.join(known)}"] if known else []
    title = f"Key Metrics (one op is {OPERATIONS['micro:operation'].title}; bandwidth of 100 MB)"
    return [title, *lines, ""] if lines else []


def _text_cells(benchmark: Benchmark) -> tuple[str, ...]:
    if not benchmark.valid:
        return (benchmark.workload, "INVALID", *[""] * (len(MICRO_HEADINGS) - 2))
    latencies = (
        benchmark.latency_mean_ms,
        benchmark.latency_p50_ms,
        benchmark.latency_p90_ms,
        benchmark.latency_p99_ms,
    )
    bandwidth = benchmark.bandwidth_gb_per_s
    return (
        benchmark.workload,
        f"{benchmark.throughput_samples_per_sec:,.1f}",
        *("-" if value is None else f"{1000.0 * value:.3f}" for value in latencies),
        "" if bandwidth is None else f"{bandwidth:.4g}",
        str(benchmark.queries),
    )


def _text_row(cells: tuple[str, ...]) -> str:
    first, *rest = cells
    return (f"  {first:<22}" + "".join(f"{cell:>13}" for cell in rest)).rstrip()
