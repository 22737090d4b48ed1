"""`gputax run` from the command line to the files on disk."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from gputax.results.kinds import RUN
from gputax.results.store import read_document, read_samples
from tests.standins.command import TINY_SUITE, run_gputax

Gputax = Callable[..., subprocess.CompletedProcess[str]]
REPOSITORY = Path(__file__).resolve().parents[2]
ENGINE = "synthetic:latency_us=1000,per_sample_us=100"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run for all tests that read it."""
    place = tmp_path_factory.mktemp("run")
    (place / "tiny.toml").write_text(TINY_SUITE)
    done = run_gputax("run", "--engine", ENGINE, "--suite", "tiny.toml", "--out", "out", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "Saved: out" in done.stdout
    return place / "out"


def test_the_directory_holds_all_that_a_report_needs(finished: Path) -> None:
    files = {str(path.relative_to(finished)) for path in finished.rglob("*") if path.is_file()}
    cells = ["offline-b1", "offline-b4", "server-b4", "single-stream-b1"]
    expected = {"benchmark_results.json", "environment.json", "events.jsonl"}
    for cell in cells:
        expected.add(f"samples/resnet50-{cell}-bare.parquet")
        for name in ("mlperf_log_summary.txt", "mlperf_log_detail.txt", "telemetry.json"):
            expected.add(f"cells/resnet50-{cell}-bare/{name}")
    assert files == expected


def test_the_record_keeps_the_keys_that_users_have(finished: Path) -> None:
    data = json.loads((finished / "benchmark_results.json").read_text())
    assert set(data["gpu_info"]) == {"name", "cuda_version", "total_memory_gb"}
    assert data["timestamp"]
    by_scenario = {entry["scenario"]: entry for entry in data["benchmarks"]}
    assert set(by_scenario) == {"offline", "server", "single_stream"}
    assert by_scenario["offline"]["throughput_samples_per_sec"] > 0
    assert by_scenario["offline"]["duration_sec"] > 0
    assert by_scenario["single_stream"]["latency_p90_ms"] >= 1.0
    assert by_scenario["server"]["latency_p99_ms"] is None, "100 samples are below the floor of 662"


def test_the_record_fits_the_schema_that_is_checked_in(finished: Path) -> None:
    schema = json.loads((REPOSITORY / "docs/benchmark_results.schema.json").read_text())
    jsonschema.validate(json.loads((finished / "benchmark_results.json").read_text()), schema)


def test_the_figures_can_be_computed_again_from_the_samples(finished: Path) -> None:
    for benchmark in read_document(RUN, finished).benchmarks:
        columns = read_samples(finished / benchmark.samples_file)
        begin = columns["scheduled_ns" if benchmark.scenario == "server" else "start_ns"]
        latency_ms = np.sort(columns["end_ns"] - begin) / 1e6
        assert benchmark.latency_mean_ms == pytest.approx(latency_ms.mean())
        if benchmark.latency_p90_ms is not None:
            assert benchmark.latency_p90_ms == latency_ms[int(len(latency_ms) * 0.9)]


def test_every_number_names_its_device_and_its_claim(finished: Path) -> None:
    record = read_document(RUN, finished)
    assert record.device == "cpu"
    assert record.device_label.endswith("not a GPU")
    assert record.gpu_info.name.startswith("no GPU used")
    assert all("says nothing of any device" in benchmark.claim for benchmark in record.benchmarks)
    assert record.evidence["active"] is True


def test_a_complete_run_is_not_overwritten_by_accident(
    finished: Path, gputax: Gputax, tiny_suite: str, tmp_path: Path
) -> None:
    complete = shutil.copytree(finished, tmp_path / "out")
    before = (complete / "benchmark_results.json").read_bytes()
    again = ("run", "--engine", ENGINE, "--suite", tiny_suite, "--out", "out")
    done = gputax(*again)
    assert done.returncode == 2
    assert "already complete" in done.stderr
    assert "--overwrite" in done.stderr
    other = gputax(*again, "--threads", "1")
    assert other.returncode == 2
    assert "another run" in other.stderr
    assert (complete / "benchmark_results.json").read_bytes() == before
    assert gputax(*again, "--overwrite").returncode == 0


def test_json_goes_to_stdout_and_progress_to_stderr(gputax: Gputax, tiny_suite: str) -> None:
    done = gputax(
        "run", "--engine", ENGINE, "--suite", tiny_suite, "--scenario", "saturate,multi-stream", "--out", "o", "--json"
    )
    assert done.returncode == 0, done.stderr
    scenarios = [entry["scenario"] for entry in json.loads(done.stdout)["benchmarks"]]
    assert scenarios == ["saturate", "multi_stream"]
    assert "[1/2] resnet50 saturate batch 2 (bare)" in done.stderr


def test_a_dry_run_shows_the_cells_and_touches_nothing(gputax: Gputax, tmp_path: Path) -> None:
    done = gputax("run", "--suite", "standard", "--dry-run")
    assert done.returncode == 0
    assert "resnet50 server batch 32 (bare)" in done.stdout
    assert "7 cells, at least" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_without_out_the_directory_is_named_by_environment_and_time(
    gputax: Gputax, tiny_suite: str, tmp_path: Path
) -> None:
    gputax("run", "--engine", ENGINE, "--suite", tiny_suite, "--scenario", "saturate")
    (directory,) = (tmp_path / "results").iterdir()
    assert directory.name.startswith("bare-20")


def test_a_given_rate_that_is_too_high_is_invalid_and_exits_5(gputax: Gputax, tiny_suite: str) -> None:
    done = gputax(
        "run", "--engine", "synthetic:latency_us=4000", "--suite", tiny_suite, "--scenario", "server",
        "--qps", "2000", "--batch", "1", "--out", "o", "--json",
    )  # fmt: skip
    assert done.returncode == 5
    (benchmark,) = json.loads(done.stdout)["benchmarks"]
    assert benchmark["valid"] is False
    assert benchmark["loadgen"]["invalid_reasons"]
    assert any(warning["code"] == "loadgen-invalid" for warning in benchmark["warnings"])
    assert benchmark["rate_source"] == "given by --qps"
    assert [(attempt["kind"], attempt["held"]) for attempt in benchmark["attempts"]] == [("measurement", False)]


def test_every_rate_that_was_tried_is_kept(gputax: Gputax, tiny_suite: str) -> None:
    # The pilot's batch of 8 is fast, but a bound of one single request leaves no room to wait: rates are stepped down.
    done = gputax(
        "run", "--engine", "synthetic:latency_us=4000", "--suite", tiny_suite, "--scenario", "server",
        "--bound-ms", "4.5", "--batch", "4", "--out", "o", "--json",
    )  # fmt: skip
    assert done.returncode in (0, 5), done.stderr
    (benchmark,) = json.loads(done.stdout)["benchmarks"]
    measurements = [attempt for attempt in benchmark["attempts"] if attempt["kind"] == "measurement"]
    assert len(measurements) == 3, "this bound cannot hold at any of the three rates"
    rates = [attempt["rate_per_s"] for attempt in measurements]
    assert rates == sorted(rates, reverse=True)
    assert not any(attempt["held"] for attempt in measurements)
    assert any(warning["code"] == "rate-stepped-down" for warning in benchmark["warnings"])
