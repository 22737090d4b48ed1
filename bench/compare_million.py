"""`compare_million_s`: two result sets of one million samples each, compared and shown by the command itself."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from gputax.results.documents.run import Benchmark, GpuInfo, LoadGenVerdict, RunRecord
from gputax.results.reading import RUN
from gputax.results.store import ResultDirectory

SAMPLES = 1_000_000


def compare_million() -> dict[str, Any]:
    """Wall time and memory at its largest of one `gputax compare`, its start included."""
    with tempfile.TemporaryDirectory() as folder:
        sides = [Path(folder) / name for name in ("base", "other")]
        for seed, side in enumerate(sides):
            write_run(side, mean_ms=2.0 * 1.03**seed, seed=seed)
        started = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "gputax", "compare", *map(str, sides)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdout
        shown = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stdout.close()
    assert process.returncode == 7, f"one run each is undecided, not exit code {process.returncode}: {shown.decode()}"
    return {"compare_million_s": seconds, "compare_million_peak_mb": usage.ru_maxrss / 1024}


def write_run(directory: Path, *, mean_ms: float, seed: int, samples: int = SAMPLES) -> None:
    """Write a result directory with one single-stream cell of so many samples."""
    latency_ns = np.random.default_rng(seed).lognormal(np.log(mean_ms * 1e6), 0.1, samples).astype(np.int64)
    end_ns = np.cumsum(latency_ns)
    name = "resnet50-single-stream-b1-bare"
    store = ResultDirectory(directory, RUN)
    columns = {"start_ns": end_ns - latency_ns, "end_ns": end_ns, "samples": np.ones(samples, dtype=np.int64)}
    store.write_samples(f"samples/{name}.parquet", columns)
    store.write_document(_record(name, latency_ns))
    store.close()


def _record(name: str, latency_ns: np.ndarray) -> RunRecord:
    seconds = float(latency_ns.sum()) / 1e9
    benchmark = Benchmark(
        scenario="single_stream",
        batch_size=1,
        throughput_samples_per_sec=latency_ns.size / seconds,
        duration_sec=seconds,
        cell=name,
        workload="resnet50",
        environment="bare",
        device="cpu",
        engine="synthetic",
        provider="synthetic",
        precision="none",
        threads=1,
        weights="none",
        claim="drawn at random to measure the tool itself",
        latency_mean_ms=float(latency_ns.mean()) / 1e6,
        latency_min_ms=float(latency_ns.min()) / 1e6,
        latency_max_ms=float(latency_ns.max()) / 1e6,
        queries=latency_ns.size,
        samples=latency_ns.size,
        mean_batch_size=1.0,
        loadgen=LoadGenVerdict(valid=True),
        valid=True,
        load={},
        started_at="2026-01-01T00:00:00+00:00",
        warmup_s=0.0,
        samples_file=f"samples/{name}.parquet",
        telemetry_file="none",
    )
    return RunRecord(
        gputax_version="bench",
        timestamp="2026-01-01T00:00:00+00:00",
        complete=True,
        plan_id="bench",
        cells_planned=(name,),
        environment="bare",
        device="cpu",
        device_label="CPU (drawn at random), not a GPU",
        gpu_info=GpuInfo(name="no GPU used"),
        benchmarks=(benchmark,),
    )


if __name__ == "__main__":
    print(compare_million())
