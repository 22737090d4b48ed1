"""From measured cells to the documents on disk: pure, apart from the store that writes them."""

from __future__ import annotations

import dataclasses
from typing import Any

from gputax import __version__
from gputax.environments.described import Described
from gputax.environments.evidence import Evidence
from gputax.errors import GputaxError
from gputax.measure.run.cell import Measured
from gputax.plan.cells import Cell
from gputax.plan.claims import claim, device_label
from gputax.plan.engines import parse_engine
from gputax.plan.notices import Notice
from gputax.plan.workloads import workload_facts
from gputax.results.documents.run import (
    Benchmark,
    Failure,
    GpuInfo,
    LoadGenVerdict,
    RateAttempt,
    RunRecord,
    with_notices,
)


def empty_record(cells: tuple[Cell, ...], plan: str, timestamp: str) -> RunRecord:
    """Return the record of a run that has measured nothing yet."""
    return RunRecord(
        gputax_version=__version__,
        timestamp=timestamp,
        complete=False,
        sessions=(timestamp,),
        plan_id=plan,
        cells_planned=tuple(cell.id for cell in cells),
        environment=cells[0].environment,
        device_label="nothing measured yet",
        gpu_info=GpuInfo(name="nothing measured yet"),
    )


def described_record(record: RunRecord, described: Described, facts: dict[str, Any], evidence: Evidence) -> RunRecord:
    """Add what the worker told of its place, its device and its engine."""
    host = described.host
    device = str(facts["device"])
    gpus = described.gpus
    used = gpus[0] if device == "cuda" and gpus else {}
    name = device_name_of(described, facts)
    engine = {key: value for key, value in facts.items() if key not in ("notices", "prepare_s")}
    setups = {**record.fingerprint.get("setups", {}), str(facts["workload"]): engine}
    return record.model_copy(
        update={
            "device": device,
            "device_label": device_label(device, name),
            "gpu_info": _gpu_info(device, name, used),
            "evidence": evidence.to_dict(),
            "fingerprint": {
                "host": {
                    key: host.get(key)
                    for key in (
                        "cpu_model",
                        "cores_online",
                        "kernel",
                        "hypervisor",
                        "governors",
                        "distribution",
                    )
                },
                "cpu_allowance": described.cpu_allowance,
                "gpus": gpus,
                "packages": described.packages,
                "setups": setups,
            },
            "warnings": with_notices(record.warnings, [Notice.from_dict(item) for item in facts.get("notices", [])]),
        }
    )


def benchmark_document(measured: Measured, facts: dict[str, Any], started_at: str, session: int) -> Benchmark:
    """Return the record of one cell."""
    cell, figures, load = measured.cell, measured.figures, measured.observation.load
    workload = workload_facts(cell.setup.workload)
    device, weights = str(facts["device"]), str(facts.get("weights", "none"))
    engine = parse_engine(cell.setup.engine).name
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
        device=device,
        engine=cell.setup.engine,
        provider=str(facts["provider"]),
        precision=str(facts["precision"]),
        threads=int(facts["threads"]),
        weights=weights,
        weights_sha256=facts.get("weights_sha256"),
        claim=claim(
            cell.scenario,
            engine,
            device,
            weights,
            official=cell.load.official,
            is_mlperf_model=workload.is_mlperf_model,
        ),
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
        rate_source=measured.rate_source or None,
        attempts=tuple(RateAttempt(**dataclasses.asdict(each)) for each in measured.attempts),
        throughput_half_width_percent=figures.throughput_half_width_percent,
        bytes_per_run=bytes_per_run or None,
        bandwidth_gb_per_s=bytes_per_run / figures.mean_ns if bytes_per_run else None,
        evidence=measured.evidence.to_dict(),
        session=session,
        load={**load.to_dict(), "official": cell.load.official},
        started_at=started_at,
        warmup_s=measured.warmup_s,
        samples_file=f"samples/{cell.id}.parquet",
        logs_dir=f"cells/{cell.id}" if measured.log else None,
        telemetry_file=f"cells/{cell.id}/telemetry.json",
        warnings=with_notices((), list(measured.notices)),
    )


def failure_document(cell: Cell, error: GputaxError) -> Failure:
    """Return the record of a cell that failed."""
    return Failure(cell=cell.id, kind=type(error).__name__, what=error.what, where=error.where, next=error.next_step)


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


def device_name_of(described: Described, facts: dict[str, Any]) -> str:
    """Return the name of the device that the engine used, from what the worker told."""
    if facts.get("device_name"):
        return str(facts["device_name"])
    if facts["device"] == "cuda":
        gpus = described.gpus or [{}]
        return str(gpus[0].get("name") or "unknown NVIDIA device")
    return str(described.host.get("cpu_model") or "unknown CPU")


def _gpu_info(device: str, name: str, gpu: dict[str, Any]) -> GpuInfo:
    if device != "cuda":
        return GpuInfo(name=f"no GPU used: {name}")
    memory = gpu.get("memory_total_mb")
    return GpuInfo(
        name=name,
        cuda_version=gpu.get("cuda_driver_version"),
        total_memory_gb=None if memory is None else round(float(memory) / 1024, 2),
    )
