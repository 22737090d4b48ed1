"""Hand-made documents for the tests of reports."""

from __future__ import annotations

from typing import Any

import numpy as np

from gputax.report.distributions import cell_shape
from gputax.report.grouping import Compared
from gputax.report.sources import ComparisonSource, RunSource, Sources
from gputax.results.documents.base import WarningRecord
from gputax.results.documents.comparison import ComparedMetric, Comparison, PairSeries, Resolution, Side
from gputax.results.documents.run import Benchmark, GpuInfo, LoadGenVerdict, RunRecord

CPU = "CPU (Test CPU), not a GPU"
STAMP = "2026-01-01T12:00:00+00:00"
HOSTILE = "<script>alert(1)</script>"


def side(label: str, **changes: Any) -> Side:
    values: dict[str, Any] = {
        "label": label, "environment": label, "device": "cpu", "device_label": CPU, "source": f"results/{label}",
        "format": "gputax", "fingerprint": {"host": {"cores": 2}, "threads": 2},
        "evidence": {"layer": label, "active": True},
    }  # fmt: skip
    return Side(**{**values, **changes})


def metric(base: str = "bare", other: str = "k8s+proxy", percent: float | None = 3.2, **changes: Any) -> ComparedMetric:
    """A throughput of resnet50 offline, paired, that passes a budget of 5 %."""
    values: dict[str, Any] = {
        "workload": "resnet50", "scenario": "offline", "batch_size": 8, "metric": "throughput", "unit": "samples/s",
        "base": base, "other": other, "base_value": 1000.0, "other_value": 969.0, "overhead_percent": percent,
        "ci95_percent": None if percent is None else (percent - 0.6, percent + 0.7), "budget": 5.0, "budget_unit": "%",
        "budget_source": "budget of the layer proxy", "verdict": "pass", "reason": "upper bound is below the budget",
        "paired": True, "pairs": 120, "claim": "CPU number, not a GPU's",
    }  # fmt: skip
    return ComparedMetric(**{**values, **changes})


def p99(base: str = "bare", other: str = "k8s+proxy", **changes: Any) -> ComparedMetric:
    """A p99 of the server scenario, held against +2 ms."""
    values: dict[str, Any] = {
        "scenario": "server", "metric": "latency_p99", "unit": "ms", "base_value": 20.0, "other_value": 21.4,
        "overhead_absolute": 1.4, "ci95_absolute": (1.1, 1.8), "budget": 2.0, "budget_unit": "ms",
        "budget_source": "p99 may grow by 2 ms", "ci95_percent": (5.4, 8.9),
    }  # fmt: skip
    return metric(base, other, 7.0, **{**values, **changes})


def row(*arguments: Any, **changes: Any) -> Compared:
    """A metric with its sides."""
    made = metric(*arguments, **changes)
    return Compared(made, side(made.base), side(made.other))


def comparison(*metrics: ComparedMetric, **changes: Any) -> Comparison:
    metrics = metrics or (metric(),)
    labels = list(dict.fromkeys(label for each in metrics for label in (each.base, each.other)))
    values: dict[str, Any] = {
        "kind": "duet", "gputax_version": "0", "timestamp": STAMP, "question": "What does it cost?",
        "command": "gputax duet bare k8s+proxy --budget 5%", "sides": tuple(side(label) for label in labels),
        "metrics": metrics,
        "resolution": Resolution(
            half_width_percent=0.31, ci95_percent=(-0.2, 0.4), pairs=120, seconds=60.0, contains_zero=True
        ),
        "pair_series": (series(),),
        "settings": {"slot_ms": 100},
        "warnings": (WarningRecord(code="dropped", text="1 pair was dropped: a worker died."),),
    }  # fmt: skip
    return Comparison(**{**values, **changes})


def series(**changes: Any) -> PairSeries:
    values: dict[str, Any] = {
        "workload": "resnet50", "scenario": "offline", "metric": "throughput", "time_s": (0.0, 0.4, 0.8),
        "overhead_percent": (2.9, 3.5, 3.1), "b_first": (True, False, True),
    }  # fmt: skip
    return PairSeries(**{**values, **changes})


def benchmark(cell: str = "resnet50-offline-b8-bare", **changes: Any) -> Benchmark:
    values: dict[str, Any] = {
        "scenario": "offline", "batch_size": 8, "throughput_samples_per_sec": 1523.8, "duration_sec": 4.0,
        "latency_p90_ms": 6.5, "latency_p95_ms": 6.6, "latency_p99_ms": None, "cell": cell, "workload": "resnet50",
        "environment": "bare", "device": "cpu", "engine": "onnx", "provider": "CPUExecutionProvider",
        "precision": "fp32", "threads": 2, "weights": "seeded", "claim": "CPU number, not a GPU's",
        "latency_mean_ms": 6.4, "latency_p50_ms": 6.25, "latency_min_ms": 6.0, "latency_max_ms": 9.0, "queries": 500,
        "samples": 4000, "mean_batch_size": 8.0, "loadgen": LoadGenVerdict(valid=True), "valid": True, "load": {},
        "started_at": STAMP, "warmup_s": 1.0, "samples_file": f"samples/{cell}.parquet",
        "telemetry_file": f"cells/{cell}/telemetry.json",
    }  # fmt: skip
    return Benchmark(**{**values, **changes})


def record(*benchmarks: Benchmark, **changes: Any) -> RunRecord:
    benchmarks = benchmarks or (benchmark(),)
    values: dict[str, Any] = {
        "gputax_version": "0", "timestamp": STAMP, "complete": True, "plan_id": "p",
        "cells_planned": tuple(each.cell for each in benchmarks), "environment": "bare", "device": "cpu",
        "device_label": CPU, "gpu_info": GpuInfo(name="no GPU used: Test CPU"), "benchmarks": benchmarks,
        "fingerprint": {"threads": 2}, "evidence": {"active": True},
    }  # fmt: skip
    return RunRecord(**{**values, **changes})


def columns(count: int = 1000, latency_ns: int = 5_000_000) -> dict[str, Any]:
    """Samples of a closed loop whose latencies are spread evenly over a tenth."""
    latency = np.random.default_rng(7).permutation(np.linspace(latency_ns, latency_ns * 1.1, count)).astype(np.int64)
    end = np.cumsum(latency)
    return {"start_ns": end - latency, "end_ns": end, "samples": np.full(count, 8)}


def run_source(*benchmarks: Benchmark, directory: str = "results/bare", **changes: Any) -> RunSource:
    made = record(*benchmarks, **changes)
    telemetry: dict[str, list[float | None]] = {
        "time_ns": [0, 500_000_000, 1_000_000_000],
        "own_busy_percent": [None, 60.0, 62.0],
        "steal_percent": [None, 0.0, 1.0],
        "rss_mb": [100.0, 101.0, 102.0],
    }
    return RunSource(
        directory,
        made,
        {each.cell: cell_shape(each.scenario, columns()) for each in made.benchmarks if each.scenario != "server"},
        {each.cell: telemetry for each in made.benchmarks},
    )


def sources(*comparisons: Comparison, runs: tuple[RunSource, ...] = ()) -> Sources:
    return Sources(
        runs, tuple(ComparisonSource(f"results/duet-{i}/comparison.json", each) for i, each in enumerate(comparisons))
    )


def by_metric(comparison: Comparison) -> dict[str, ComparedMetric]:
    """Return the rows by the name of their metric."""
    return {row.metric: row for row in comparison.metrics}
