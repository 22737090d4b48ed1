"""The older benchmark_results.json, in the users' own shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gputax.errors import ResultsError
from gputax.results.importers.detect import read_source

OLDER: dict[str, Any] = {
    "timestamp": "2025-12-15T12:30:00",
    "gpu_info": {"name": "Tesla T4", "cuda_version": "12.0", "total_memory_gb": 15.0},
    "benchmarks": [
        {"scenario": "offline", "batch_size": 32, "throughput_samples_per_sec": 3450, "duration_sec": 30.0},
        {"scenario": "server", "batch_size": 32, "latency_p99_ms": 28.1, "latency_p90_ms": 25.0},
        {"scenario": "single_stream", "batch_size": 1, "latency_p90_ms": 4.7},
    ],
}


def written(directory: Path, data: Any) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "benchmark_results.json").write_text(json.dumps(data))
    return directory


def test_every_entry_becomes_a_cell(tmp_path: Path) -> None:
    source = read_source(written(tmp_path / "baseline", OLDER))
    assert (source.format, source.label, source.device) == ("older-json", "bare", "cuda")
    assert source.device_label == "GPU (Tesla T4)"
    offline, server, stream = source.cells
    assert (offline.scenario, offline.batch_size, dict(offline.metrics)) == ("offline", 32, {"throughput": 3450.0})
    assert dict(server.metrics) == {"latency_p99": 28.1, "latency_p90": 25.0}
    assert (stream.scenario, stream.workload, stream.load_samples) == ("single-stream", "unknown", None)
    assert (offline.conditions["device_name"], offline.conditions["scenario"]) == ("Tesla T4", "offline")
    assert "workload" not in offline.conditions, "not named, so not unequal to anything"


def test_the_file_may_be_named_itself(tmp_path: Path) -> None:
    path = written(tmp_path / "x", OLDER) / "benchmark_results.json"
    assert read_source(path).cells == read_source(tmp_path / "x").cells


def test_units_are_those_of_the_keys(tmp_path: Path) -> None:
    entry = {
        "scenario": "server", "model": "ResNet-50", "latency_p99_us": 28100, "latency_p90_ns": 25e6,
        "latency_avg_s": 0.02, "throughput_queries_per_sec": 40,
    }  # fmt: skip
    (cell,) = read_source(written(tmp_path / "x", {"benchmarks": [entry]})).cells
    assert dict(cell.metrics) == pytest.approx(
        {"latency_p99": 28.1, "latency_p90": 25.0, "latency_mean": 20.0, "throughput": 40.0}
    )
    assert (cell.workload, cell.conditions["counted"]) == ("resnet50", "queries")


def test_without_a_cuda_version_nothing_says_that_it_was_a_gpu(tmp_path: Path) -> None:
    source = read_source(written(tmp_path / "x", {**OLDER, "gpu_info": {"name": "CPU"}}))
    assert source.device is None
    assert "not a GPU" in source.device_label


@pytest.mark.parametrize("value", ["NaN", "-1", '"fast"', "true", "Infinity", "[1]"])
def test_a_bad_number_is_left_out_and_said_so(tmp_path: Path, value: str) -> None:
    text = json.dumps(OLDER).replace("28.1", value)
    (tmp_path / "benchmark_results.json").write_text(text)
    server = read_source(tmp_path).cells[1]
    assert dict(server.metrics) == {"latency_p90": 25.0}
    assert "skipped: latency_p99 is" in server.notices[0].text


def test_the_same_thing_twice_must_be_the_same(tmp_path: Path) -> None:
    entry = {"scenario": "server", "latency_p99_ms": 28.1, "latency_p99_us": 3, "latency_p90_ms": 1}
    (cell,) = read_source(written(tmp_path / "x", {"benchmarks": [entry]})).cells
    assert dict(cell.metrics) == {"latency_p90": 1.0}
    assert "twice" in cell.notices[0].text


@pytest.mark.parametrize("entries", [[], [3, None], [{"scenario": "offline"}], [{"latency_p99_ms": None}]])
def test_nothing_to_compare_is_an_error(tmp_path: Path, entries: list[Any]) -> None:
    with pytest.raises(ResultsError, match="no benchmark in this file has a known metric"):
        read_source(written(tmp_path / "x", {"benchmarks": entries}))


def test_hostile_names_are_kept_as_text(tmp_path: Path) -> None:
    entry = {"scenario": "\x1b]0;x\x07", "model": "<script>", "latency_p99_ms": 1.0, "batch_size": "8; rm"}
    data = {"benchmarks": [entry], "gpu_info": {"name": "T4\ud800", "cuda_version": "12"}}
    source = read_source(written(tmp_path / "x", data))
    (cell,) = source.cells
    assert (cell.workload, cell.batch_size) == ("<script>", None)
    assert cell.scenario.isprintable()
    json.dumps(source.fingerprint, ensure_ascii=False).encode()
