"""Turn measured cells into the run record; pure."""

from __future__ import annotations

import dataclasses
from typing import Any

from gputax import __version__
from gputax.environments.environment import Described, Evidence
from gputax.measure.fingerprint import claim_of, device_name_of, engine_of, host_of, notices_of
from gputax.measure.run.cell import Measured
from gputax.plan.cells import Cell, repetition_name
from gputax.plan.claims import device_label
from gputax.results.documents.base import with_notices
from gputax.results.documents.run import Benchmark, GpuInfo, LoadGenVerdict, RateAttempt, RunRecord


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
        bytes_per_run=bytes_per_run or None,
        bandwidth_gb_per_s=bytes_per_run / figures.mean_ns if bytes_per_run else None,
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
    if device != "cuda":
        return GpuInfo(name=f"no GPU used: {name}")
    memory = gpu.get("memory_total_mb")
    return GpuInfo(
        name=name,
        cuda_version=gpu.get("cuda_driver_version"),
        total_memory_gb=None if memory is None else round(float(memory) / 1024, 2),
    )
