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

from gputax.results.reading import RUN
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
    assert benchmark["rate_source"] == "given by --qps or --like"
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


@pytest.fixture(scope="module")
def repeated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three repeats of every cell: two, and then one more."""
    place = tmp_path_factory.mktemp("repeated")
    (place / "tiny.toml").write_text(TINY_SUITE)
    words = ("run", "--engine", ENGINE, "--suite", "tiny.toml", "--out", "out", "--repeats")
    for repeats in ("2", "3"):
        done = run_gputax(*words, repeats, cwd=place)
        assert done.returncode in (0, 5), done.stderr
    assert "Means over 3 repeats" in done.stdout
    assert done.stdout.count("resnet50 offline b4") == 1, "one row per cell, not one per repeat"
    again = run_gputax(*words, "3", cwd=place)
    assert again.returncode == 2
    assert "already complete" in again.stderr
    return place / "out"


def test_every_repeat_is_a_measurement_of_its_own_by_a_new_worker(repeated: Path) -> None:
    record = read_document(RUN, repeated)
    assert record.complete
    assert len(record.cells) == 4
    for cell in record.cells:
        own = [each for each in record.benchmarks if each.cell == cell.cell]
        assert [each.repeat for each in own] == [1, 2, 3]
        assert len({each.samples_file for each in own}) == 3
        assert all((repeated / each.samples_file).is_file() for each in own)
        rates = [each.throughput_samples_per_sec for each in own]
        assert cell.throughput_samples_per_sec == pytest.approx(3 / sum(1 / rate for rate in rates))
    order = [[each.cell for each in record.benchmarks if each.repeat == number] for number in (1, 2, 3)]
    assert order[1] != order[0], "every round has an order of its own"
    assert [cell for each in order for cell in each] == [each.cell for each in record.benchmarks], "round by round"
    assert set(record.cells_planned) == {each.name for each in record.benchmarks}


def test_repeats_of_a_server_cell_are_at_one_rate(repeated: Path) -> None:
    server = [each for each in read_document(RUN, repeated).benchmarks if each.scenario == "server"]
    assert len({(each.target_qps, each.latency_bound_ms, each.rate_source) for each in server}) == 1
    assert [attempt.kind for each in server[1:] for attempt in each.attempts] == ["measurement"] * 2


def test_a_report_shows_the_mean_over_the_repeats(repeated: Path) -> None:
    done = run_gputax("report", str(repeated), cwd=repeated.parent)
    assert "Means over 3 repeats" in done.stdout


def test_a_run_with_repeats_can_be_compared_with_itself(repeated: Path) -> None:
    done = run_gputax("compare", "out", "out", "--budget", "1000%", "--json", cwd=repeated.parent)
    rows = json.loads(done.stdout)["metrics"]
    assert {tuple(row["repeats"]) for row in rows} == {(3, 3)}
    assert {row["spread"] for row in rows if row["overhead_percent"] is not None} == {"between repeats"}


def test_a_run_like_an_earlier_one_can_be_compared_with_it(repeated: Path) -> None:
    place = repeated.parent
    done = run_gputax("run", "--like", "out", "--out", "again", "--json", cwd=place)
    assert done.returncode in (0, 5), done.stderr
    record = json.loads(done.stdout)
    assert len(record["benchmarks"]) == 12, "three repeats, as the earlier run has"
    done = run_gputax("compare", "out", "again", "--budget", "1000%", "--json", cwd=place)
    rows = json.loads(done.stdout)["metrics"]
    assert {row["scenario"] for row in rows} == {"offline", "server", "single-stream"}
    assert "not comparable" not in {row["verdict"] for row in rows}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--like", "nowhere"), "no results here"),
        (("--like", "out", "--suite", "tiny.toml"), "--like takes the sizes of an earlier run"),
        (
            ("--like", "out", "--threads", "3", "--dry-run"),
            "warning: --threads 3 instead of 1: not comparable with out",
        ),
    ],
)
def test_what_contradicts_an_earlier_run_is_said(repeated: Path, words: tuple[str, ...], text: str) -> None:
    done = run_gputax("run", *words, cwd=repeated.parent)
    assert text in " ".join(done.stderr.split())
