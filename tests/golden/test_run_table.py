"""The whole table at the end of a run, from a hand-made record."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from gputax.report.exporters.console_text import write_console
from gputax.report.sources import RunSource, Sources
from gputax.report.story import build_report
from gputax.results.documents.base import Failure, WarningRecord
from gputax.results.documents.run import Benchmark, GpuInfo, LoadGenVerdict, RunRecord

GOLDEN = Path(__file__).parent / "run_table.txt"


def benchmark(cell: str, **changes: Any) -> Benchmark:
    values: dict[str, Any] = {
        "scenario": "offline", "batch_size": 8, "throughput_samples_per_sec": 1234.5, "duration_sec": 4.0,
        "latency_p90_ms": 6.5, "latency_p95_ms": 6.6, "latency_p99_ms": None, "cell": cell, "workload": "resnet50",
        "environment": "bare", "device": "cpu", "engine": "onnx", "provider": "CPUExecutionProvider",
        "precision": "fp32", "threads": 2, "weights": "seeded", "claim": "CPU number, not a GPU's",
        "latency_mean_ms": 6.4, "latency_p50_ms": 6.25, "latency_min_ms": 6.0, "latency_max_ms": 9.0, "queries": 500,
        "samples": 4000, "mean_batch_size": 8.0, "loadgen": LoadGenVerdict(valid=True), "valid": True, "load": {},
        "started_at": "2026-01-01T00:00:00+00:00", "warmup_s": 1.0, "samples_file": "s", "telemetry_file": "t",
        "warnings": (),
    }  # fmt: skip
    return Benchmark(**{**values, **changes})


def record() -> RunRecord:
    busy = [WarningRecord(code="busy", text=f"Others used {share} %.", value=share) for share in (12, 55)]
    few = WarningRecord(code="too-few-samples", text="p99 needs 662 samples", value=500)
    return RunRecord(
        gputax_version="0", timestamp="2026-01-01T00:00:00+00:00", complete=True, plan_id="p",
        sessions=("2026-01-01", "2026-01-02"),
        cells_planned=("a", "b", "c", "d"), environment="bare", device="cpu",
        device_label="CPU (Test CPU), not a GPU", gpu_info=GpuInfo(name="no GPU used: Test CPU"),
        benchmarks=(
            benchmark("a", warnings=(busy[0], few)),
            benchmark(
                "b", scenario="server", valid=False, loadgen=LoadGenVerdict(valid=False), mean_batch_size=2.34,
                latency_bound_ms=300.0, latency_bound_source="ours: 10 x p90", judged_percentile=0.9,
                target_qps=1300.0, rate_source="chosen by gputax", session=2,
                warnings=(busy[1],),
            ),
            benchmark(
                "c", throughput_half_width_percent=1.234, session=2, scenario="saturate", loadgen=None,
                throughput_samples_per_sec=12.3456,
            ),
        ),
        failures=(Failure(cell="d", kind="EngineError", what="it broke [here]", next="look"),),
        warnings=(WarningRecord(code="device-auto", text="device auto chose cpu"),),
    )  # fmt: skip


def test_the_whole_table() -> None:
    stream = io.StringIO()
    write_console(build_report(Sources(runs=(RunSource("results/x", record(), {}, {}),))), stream, "screen", width=80)
    text = "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"
    if os.environ.get("GPUTAX_WRITE_GOLDEN"):  # by hand, and then read what has changed
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()
