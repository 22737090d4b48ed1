"""A run like an earlier one: what it takes over, what wins, what is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from gputax.errors import ResultsError, UsageError
from gputax.measure.run.documents import empty_record
from gputax.measure.run.like import plan_like
from gputax.plan.cells import Cell
from gputax.plan.suites import load_plan
from gputax.results.documents.run import Benchmark, RunRecord

CELLS = load_plan("quick", scenarios=("single-stream", "server"), engine="onnx", seed=11)


def benchmark(cell: Cell, repeat: int = 1, **changes: Any) -> Benchmark:
    server = cell.scenario == "server"
    values: dict[str, Any] = {
        "scenario": cell.scenario.replace("-", "_"), "batch_size": cell.batch_size, "throughput_samples_per_sec": 100.0,
        "duration_sec": 1.0, "cell": cell.id, "workload": cell.setup.workload, "environment": "bare", "device": "cpu",
        "engine": cell.setup.engine, "provider": "CPU", "precision": "fp32", "threads": 2, "weights": "seeded",
        "claim": "", "latency_mean_ms": 1.0, "latency_min_ms": 1.0, "latency_max_ms": 1.0, "queries": 90, "samples": 90,
        "mean_batch_size": 1.0, "target_qps": 12.5 if server else None, "latency_bound_ms": 40.0 if server else None,
        "valid": True, "load": {"min_queries": 90, "min_duration_s": 0.0, "percentile": 0.9, "max_wait_us": 0},
        "started_at": "2026-01-01T00:00:00+00:00", "warmup_s": 1.0, "samples_file": "s", "telemetry_file": "t",
        "repeat": repeat,
    }  # fmt: skip
    return Benchmark(**{**values, **changes})


def record(*, repeats: int = 1, plan: bool = True, **changes: Any) -> RunRecord:
    found = empty_record(CELLS, "plan", "2026-01-01T00:00:00+00:00")
    measured = [benchmark(cell, repeat + 1) for repeat in range(repeats) for cell in CELLS]
    update = {"benchmarks": tuple(measured), **({} if plan else {"plan": ()}), **changes}
    return found.model_copy(update=update)


def test_rate_bound_threads_and_device_are_those_of_the_earlier_run() -> None:
    like = plan_like(record(repeats=3), "base", "container")
    assert like.repeats == 3
    assert not like.contradictions
    assert {cell.environment for cell in like.cells} == {"container"}
    for before, cell in zip(CELLS, like.cells, strict=True):
        assert cell.setup == dataclasses.replace(before.setup, threads=2, device="cpu")
        rate: dict[str, Any] = {"qps": 12.5, "bound_ms": 40.0} if cell.scenario == "server" else {}
        assert cell.load == dataclasses.replace(before.load, **rate)


def test_an_explicit_option_wins_and_the_contradiction_is_named() -> None:
    like = plan_like(record(), "base", "bare", options={"threads": 4, "qps": 20.0})
    assert {cell.setup.threads for cell in like.cells} == {4}
    assert [cell.load.qps for cell in like.cells if cell.scenario == "server"] == [20.0]
    assert like.contradictions == ("--threads 4 instead of 2", "--qps 20.0 instead of 12.5")
    assert not plan_like(record(), "base", "bare", options={"threads": 2, "qps": 12.5}).contradictions


def test_names_choose_among_the_cells_of_the_earlier_run() -> None:
    like = plan_like(record(), "base", "bare", scenarios=("Server",))
    assert {cell.scenario for cell in like.cells} == {"server"}
    with pytest.raises(UsageError, match="the earlier run has no scenario offline"):
        plan_like(record(), "base", "bare", scenarios=("offline",))


def test_a_record_of_an_earlier_version_has_no_plan_but_its_measurements() -> None:
    like = plan_like(record(plan=False), "base", "bare")
    assert [cell.id for cell in like.cells] == [cell.id for cell in CELLS]
    server = next(cell for cell in like.cells if cell.scenario == "server")
    assert (server.load.qps, server.load.bound_ms, server.load.min_samples) == (12.5, 40.0, 90)
    assert server.setup.threads == 2
    own = record(plan=False).model_copy(update={"benchmarks": (benchmark(CELLS[0], weights="mine.onnx"),)})
    with pytest.raises(UsageError, match="does not say where its weights are"):
        plan_like(own, "base", "bare")


def test_a_run_that_measured_nothing_is_refused() -> None:
    with pytest.raises(ResultsError, match="no cell was measured"):
        plan_like(record().model_copy(update={"benchmarks": ()}), "base", "bare")
    with pytest.raises(ResultsError, match="plan in this record cannot be used"):
        plan_like(record().model_copy(update={"plan": ({"setup": {"colour": 1}, "load": {}},)}), "base", "bare")
