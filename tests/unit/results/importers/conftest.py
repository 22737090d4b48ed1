"""A run record in its smallest form, and directories made of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputax.results.documents.run import RECORD_NAME
from gputax.results.reading import RUN
from gputax.results.store import ResultDirectory

BENCHMARK: dict[str, Any] = {
    "scenario": "single_stream", "batch_size": 1, "throughput_samples_per_sec": 100.0, "duration_sec": 8.0,
    "latency_p90_ms": 11.0, "latency_p95_ms": 12.0, "latency_p99_ms": 13.0, "cell": "resnet50-single-stream-b1-bare",
    "workload": "resnet50", "environment": "bare", "tenants": 1, "device": "cpu", "engine": "onnx:spin=false",
    "provider": "CPUExecutionProvider", "precision": "fp32", "threads": 2, "weights": "seeded", "weights_sha256": "ab",
    "claim": "CPU number, not a GPU's", "latency_mean_ms": 10.0, "latency_p50_ms": 10.0, "latency_min_ms": 9.0,
    "latency_max_ms": 20.0, "queries": 800, "samples": 800, "mean_batch_size": 1.0,
    "loadgen": {"version": "6.0.17 @ d6147c7eb7", "valid": True}, "valid": True, "load": {"seed_offset": 0},
    "started_at": "2026-01-01T00:00:00+00:00", "warmup_s": 1.0, "samples_file": "samples/one.parquet",
    "telemetry_file": "cells/one/telemetry.json",
}  # fmt: skip
RECORD: dict[str, Any] = {
    "schema_version": 1, "gputax_version": "0.1.0", "timestamp": "2026-01-01T00:00:00+00:00", "complete": True,
    "plan_id": "p", "cells_planned": ["one"], "environment": "bare", "device": "cpu",
    "device_label": "CPU (Test CPU), not a GPU", "gpu_info": {"name": "no GPU used: Test CPU"},
    "fingerprint": {
        "host": {"cpu_model": "Test CPU", "kernel": "6.1", "governors": ["performance"], "hypervisor": False},
        "cpu_allowance": {"threads": 2, "quota_cpus": None},
        "gpus": [],
        "setups": {
            "resnet50": {"engine": "onnx", "engine_version": "1.31.1", "spin": False, "options": {"inter_op": 1},
                         "samples": "synthetic", "sample_count": 64}
        },
    },
    "evidence": {"layer": "none", "active": True}, "benchmarks": [BENCHMARK],
}  # fmt: skip
MakeRun = Callable[..., Path]


def record_data(benchmark: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(json.dumps({**RECORD, **changes}))
    for entry in data["benchmarks"]:
        entry.update(benchmark or {})
    return data


@pytest.fixture
def record() -> Callable[..., dict[str, Any]]:
    return record_data


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Write a result directory with one cell; `columns` are its samples, None for no samples file."""

    def make(
        name: str = "run",
        columns: dict[str, np.ndarray] | None = None,
        benchmark: dict[str, Any] | None = None,
        **changes: Any,
    ) -> Path:
        directory = tmp_path / name
        store = ResultDirectory(directory, RUN)
        if columns is not None:
            store.write_samples("samples/one.parquet", columns)
        store.close()
        (directory / RECORD_NAME).write_text(json.dumps(record_data(benchmark, **changes)))
        return directory

    return make
