"""The size of report.html for 20 cells: five environments, four cells each, four duets with all their pairs.

The results are made up and say so (device `software`); what is measured is the page.
"""

from __future__ import annotations

import json
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from gputax.plan.budgets import Budgets
from gputax.plan.claims import device_label
from gputax.plan.metrics import METRICS
from gputax.report.output import save_report
from gputax.report.sources import read_sources
from gputax.report.story import build_report
from gputax.results.documents.base import WarningRecord
from gputax.results.documents.comparison import (
    COMPARISON_NAME,
    ComparedMetric,
    Comparison,
    PairSeries,
    Resolution,
    Side,
)
from gputax.results.documents.run import Benchmark, GpuInfo, LoadGenVerdict, RunRecord
from gputax.results.files import write_text
from gputax.results.reading import RUN
from gputax.results.store import ResultDirectory
from gputax.stats.pairs import paired_estimate
from gputax.stats.percentiles import percentile_table
from gputax.stats.verdicts import judge

DEVICE_LABEL = device_label("software", "made-up numbers to measure the report")
# environment: its cost over bare, and what it is compared with
ENVIRONMENTS: dict[str, tuple[float, str]] = {
    "bare": (1.0, ""),
    "container": (1.004, "bare"),
    "k8s": (1.007, "bare"),
    "k8s+proxy": (1.063, "k8s"),
    "k8s+xen": (1.1055, "k8s"),
}
# workload, scenario, batch, milliseconds of one query, metrics of the duet
CELLS: tuple[tuple[str, str, int, float, tuple[str, ...]], ...] = (
    ("resnet50", "offline", 8, 6.4, ("throughput", "latency_mean")),
    ("resnet50", "server", 8, 9.1, ("latency_mean", "latency_p50", "latency_p90", "throughput")),
    ("resnet50", "single-stream", 1, 2.2, ("latency_mean", "latency_p50", "latency_p90")),
    ("bert-large", "offline", 4, 71.0, ("throughput", "latency_mean")),
)
QUERIES = 4000
PAIRS = 300
STAMP = "2026-01-01T12:00:00+00:00"


def report_size() -> dict[str, Any]:
    """Return the figures: kilobytes of the page, seconds and memory to make it."""
    with tempfile.TemporaryDirectory() as name:
        directories = write_results(Path(name))
        start = time.perf_counter()
        report = build_report(read_sources(directories))
        save_report(report, "html", Path(name) / "report.html")
        return {
            "report_kb": round((Path(name) / "report.html").stat().st_size / 1024, 1),
            "report_cells": len(ENVIRONMENTS) * len(CELLS),
            "report_s": round(time.perf_counter() - start, 2),
            "report_charts": len(report.charts),
            "report_peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        }


def write_results(root: Path) -> list[Path]:
    """Write the runs and the duets as gputax would, and return their directories."""
    generator = np.random.default_rng(7)
    directories = []
    for environment, (cost, base) in ENVIRONMENTS.items():
        directories.append(root / environment.replace("+", "-"))
        _write_run(directories[-1], environment, cost, generator)
        if base:
            directories.append(root / f"duet-{environment.replace('+', '-')}")
            duet = _duet(base, environment, cost / ENVIRONMENTS[base][0], generator)
            write_text(directories[-1] / COMPARISON_NAME, duet.model_dump_json(indent=2) + "\n")
    return directories


def _write_run(directory: Path, environment: str, cost: float, generator: np.random.Generator) -> None:
    store = ResultDirectory(directory, RUN)
    benchmarks = []
    for workload, scenario, batch, latency_ms, _ in CELLS:
        columns = _samples(scenario, batch, latency_ms * cost, generator)
        benchmark = _benchmark(workload, scenario, batch, environment, columns)
        store.write_samples(benchmark.samples_file, columns)
        write_text(directory / benchmark.telemetry_file, json.dumps(_telemetry(generator)) + "\n")
        benchmarks.append(benchmark)
    store.write_document(
        RunRecord(
            gputax_version="0", timestamp=STAMP, complete=True, plan_id="report-size",
            cells_planned=tuple(each.cell for each in benchmarks), environment=environment, device="software",
            device_label=DEVICE_LABEL, gpu_info=GpuInfo(name="no GPU used: made-up numbers"),
            fingerprint=_fingerprint(environment), evidence=_evidence(environment), benchmarks=tuple(benchmarks),
            warnings=(WarningRecord(code="hypervisor", text="The host is itself a virtual machine."),),
        )
    )  # fmt: skip
    store.close()


def _samples(scenario: str, batch: int, latency_ms: float, generator: np.random.Generator) -> dict[str, Any]:
    """Return a body of nearly equal latencies with a long tail, one after another or as they arrive."""
    latency = latency_ms * 1e6 * (0.97 + generator.lognormal(-3.5, 0.9, QUERIES))
    if scenario == "server":
        scheduled = np.cumsum(generator.exponential(latency_ms * 0.7e6, QUERIES)).astype(np.int64)
        end = scheduled + latency.astype(np.int64)
        return {"scheduled_ns": scheduled, "issued_ns": scheduled, "end_ns": end, "batch": np.full(QUERIES, 2)}
    end = np.cumsum(latency).astype(np.int64) + 1_000_000
    samples = np.full(QUERIES, batch if scenario == "offline" else 1)
    return {"start_ns": end - latency.astype(np.int64), "end_ns": end, "samples": samples}


def _benchmark(workload: str, scenario: str, batch: int, environment: str, columns: dict[str, Any]) -> Benchmark:
    begin = columns["scheduled_ns" if scenario == "server" else "start_ns"]
    table = percentile_table(columns["end_ns"] - begin, (0.50, 0.90, 0.95, 0.99))
    p50, p90, p95, p99 = (None if row.value_ns is None else row.value_ns / 1e6 for row in table.rows)
    duration_s = float(columns["end_ns"].max() - begin.min()) / 1e9
    samples = int(columns["samples"].sum()) if "samples" in columns else QUERIES
    cell = f"{workload}-{scenario}-b{batch}-{environment}"
    return Benchmark(
        scenario=scenario.replace("-", "_"), batch_size=batch, throughput_samples_per_sec=samples / duration_s,
        duration_sec=duration_s, latency_p50_ms=p50, latency_p90_ms=p90, latency_p95_ms=p95, latency_p99_ms=p99,
        cell=cell, workload=workload, environment=environment, device="software", engine="onnx", provider="software",
        precision="fp32", threads=2, weights="seeded", claim="made-up numbers to measure the report",
        latency_mean_ms=table.mean_ns / 1e6, latency_min_ms=table.min_ns / 1e6, latency_max_ms=table.max_ns / 1e6,
        queries=QUERIES, samples=samples, mean_batch_size=2.0 if scenario == "server" else float(batch),
        latency_bound_ms=15.0 if scenario == "server" else None, judged_percentile=0.99,
        loadgen=LoadGenVerdict(valid=True), valid=True, load={}, started_at=STAMP, warmup_s=1.0,
        samples_file=f"samples/{cell}.parquet", telemetry_file=f"cells/{cell}/telemetry.json",
    )  # fmt: skip


def _telemetry(generator: np.random.Generator) -> dict[str, list[float | None]]:
    rows = 120
    own = np.clip(62 + 6 * generator.standard_normal(rows), 0, 100)
    return {
        "time_ns": [int(value) for value in np.arange(rows) * 5e8],
        "own_busy_percent": [None, *own[1:].tolist()],
        "others_busy_percent": [None, *np.abs(4 * generator.standard_normal(rows - 1)).tolist()],
        "steal_percent": [None, *np.abs(generator.standard_normal(rows - 1)).tolist()],
        "gpu_utilisation_percent": np.clip(88 + 5 * generator.standard_normal(rows), 0, 100).tolist(),
        "rss_mb": (900 + np.arange(rows) * 0.1).tolist(),
    }


def _duet(base: str, other: str, ratio: float, generator: np.random.Generator) -> Comparison:
    metrics, series = [], []
    for workload, scenario, batch, latency_ms, names in CELLS:
        for name in names:
            metric, pairs = _metric(workload, scenario, batch, name, latency_ms, base, other, ratio, generator)
            metrics.append(metric)
            series.append(pairs)
    return Comparison(
        kind="duet", gputax_version="0", timestamp=STAMP, question=f"What does {other} cost over {base}?",
        command=f"gputax duet {base} {other} --workload resnet50,bert-large --max-time 120",
        sides=(_side(base), _side(other)), metrics=tuple(metrics), pair_series=tuple(series),
        resolution=Resolution(
            half_width_percent=0.31, ci95_percent=(-0.24, 0.38), pairs=120, seconds=60, contains_zero=True
        ),
        settings={"slot_ms": 100, "drop": "first 2 requests of a slot", "restart_every": 50, "seed": 7},
    )  # fmt: skip


def _metric(
    workload: str, scenario: str, batch: int, name: str, latency_ms: float, base: str, other: str, ratio: float,
    generator: np.random.Generator,
) -> tuple[ComparedMetric, PairSeries]:  # fmt: skip
    """Return one metric judged from made-up pairs by the real statistics."""
    metric = METRICS[name]
    higher = metric.better == "higher"
    level = 1000.0 * batch / latency_ms if higher else latency_ms
    drift = 1.0 + 0.03 * np.sin(np.arange(PAIRS) / 40.0)
    a = level * drift * generator.lognormal(0.0, 0.012, PAIRS)
    b = level * drift * generator.lognormal(0.0, 0.012, PAIRS) * (1.0 / ratio if higher else ratio)
    estimate = paired_estimate(a, b, better=metric.better)
    budget = Budgets().for_metric(base, other, name)
    judgement = judge(estimate, budget.value)
    logs = np.log(a / b) if higher else np.log(b / a)
    compared = ComparedMetric(
        workload=workload, scenario=scenario, batch_size=batch, metric=name, unit=metric.unit, base=base, other=other,
        base_value=float(a.mean()), other_value=float(b.mean()), overhead_percent=estimate.overhead_percent,
        ci95_percent=estimate.ci95_percent, budget=budget.value, budget_unit=budget.unit, budget_source=budget.source,
        verdict=judgement.verdict, reason=judgement.reason, paired=True, pairs=PAIRS,
        pairs_needed=judgement.pairs_needed, claim="made-up numbers to measure the report",
    )  # fmt: skip
    series = PairSeries(
        workload=workload, scenario=scenario, metric=name,
        time_s=tuple(float(value) for value in np.arange(PAIRS) * 0.4),
        overhead_percent=tuple(float(value) for value in 100.0 * np.expm1(logs)),
        b_first=tuple(bool(value) for value in generator.integers(0, 2, PAIRS)),
    )  # fmt: skip
    return compared, series


def _side(environment: str) -> Side:
    return Side(
        label=environment, environment=environment, device="software", device_label=DEVICE_LABEL,
        source=f"gputax duet ({environment})", format="duet", fingerprint=_fingerprint(environment),
        evidence=_evidence(environment),
    )  # fmt: skip


def _fingerprint(environment: str) -> dict[str, Any]:
    packages = {"gputax": "0.1.0", "numpy": "2.4.6", "onnx": "1.23.2", "onnxruntime": "1.31.1", "torch": None}
    host = {"cpu_model": "made up", "cores_online": 2, "kernel": "6.1", "hypervisor": "xen" in environment}
    setup = {"provider": "software", "threads": 2, "precision": "fp32", "weights_sha256": "0" * 64}
    return {"host": host, "cpu_allowance": {"affinity": [0, 1], "threads": 2}, "packages": packages,
            "setups": {"resnet50": setup, "bert-large": setup}}  # fmt: skip


def _evidence(environment: str) -> dict[str, Any]:
    return {"layer": environment, "active": True, "pod_uid": "b2f0" if "k8s" in environment else None}


if __name__ == "__main__":
    print(json.dumps(report_size(), indent=2))
