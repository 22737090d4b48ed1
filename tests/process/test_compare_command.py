"""`gputax compare` from the command line to the files on disk, on runs of the real tool and on files of others."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gputax.cli.compare import compare as compare_verb
from gputax.errors import ResultsError, UsageError
from gputax.results.documents.comparison import Comparison
from gputax.results.importers.pod_log import result_block
from gputax.results.reading import RUN
from gputax.results.store import read_document

Done = subprocess.CompletedProcess[str]
Compare = Callable[..., Done]
REPOSITORY = Path(__file__).resolve().parents[2]
SUITE = """
scenarios = ["single-stream", "offline"]
sample_count = 16
[single-stream]
min_samples = 700
[offline]
batch = [4]
duration_s = 0.5
"""
OLDER = {
    "timestamp": "2025-12-15T12:30:00",
    "gpu_info": {"name": "Tesla T4", "cuda_version": "12.0", "total_memory_gb": 15.0},
    "benchmarks": [
        {"scenario": "offline", "batch_size": 32, "throughput_samples_per_sec": 3400, "duration_sec": 30.0},
        {"scenario": "single_stream", "batch_size": 1, "latency_p90_ms": 4.7},
    ],
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs on disk: 1 ms, and twice that."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "suite.toml").write_text(SUITE)
    for name, latency_us in (("fast", 1000), ("slow", 2000)):
        words = ["run", "--engine", f"synthetic:latency_us={latency_us}", "--suite", "suite.toml", "--out", name]
        done = subprocess.run([sys.executable, "-m", "gputax", *words], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def place(runs: Path, tmp_path: Path) -> Path:
    """A private copy, so that a test may break what it likes."""
    for name in ("fast", "slow"):
        shutil.copytree(runs / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def compare(gputax: Compare) -> Compare:
    return partial(gputax, "compare")


def with_latency(directory: Path, mean_ms: float, seed: int, rows: int = 20_000) -> None:
    """Replace the measured samples by quiet ones, so that a verdict does not depend on the machine."""
    rng = np.random.default_rng(seed)
    for path in (directory / "samples").glob("*.parquet"):
        latency_ns = rng.lognormal(np.log(mean_ms * 1e6), 0.01, rows).astype(np.int64)
        end_ns = np.cumsum(latency_ns)
        columns = {"start_ns": end_ns - latency_ns, "end_ns": end_ns, "samples": np.full(rows, 4)}
        pq.write_table(pa.table(columns), path)


def with_repeats(directory: Path, mean_ms: float, seed: int, repeats: int = 5, samples: int = 20_000) -> None:
    """Replace the measured figures by those of quiet repeats, in alternation with another seed's."""
    rng = np.random.default_rng(seed)

    def change(data: dict[str, Any]) -> None:
        measured = []
        for number in range(repeats):
            for entry in data["benchmarks"]:
                mean = mean_ms * float(np.exp(rng.normal(0.0, 0.001)))
                latencies: dict[str, float | None] = {
                    f"latency_{name}_ms": mean * factor for name, factor in PERCENTILES.items()
                }
                if samples < 662:
                    latencies["latency_p99_ms"] = None
                figures = {"throughput_samples_per_sec": 4e3 / mean, "latency_mean_ms": mean, **latencies}
                at = f"2026-01-01T00:{2 * number:02d}:{seed:02d}+00:00"
                measured.append({**entry, **figures, "repeat": number + 1, "started_at": at})
        data["benchmarks"] = measured

    edited(directory, change)


PERCENTILES = {"p50": 0.99, "p90": 1.01, "p95": 1.015, "p99": 1.02}


def edited(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = directory / "benchmark_results.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def test_twice_the_latency_exceeds_every_budget(place: Path, compare: Compare) -> None:
    with_repeats(place / "fast", 1.0, 1)
    with_repeats(place / "slow", 2.0, 2)
    done = compare("fast", "slow")
    assert done.returncode == 6, done.stderr
    assert "5 repeats each" in done.stdout
    assert "the part lost, 1 - new/old" in " ".join(done.stdout.split())
    assert "not a GPU" in done.stdout
    assert "says nothing of any device" in " ".join(done.stdout.split())
    assert done.stderr == ""


def test_one_run_each_is_undecided_and_says_on_which_side_of_the_budget(place: Path, compare: Compare) -> None:
    with_latency(place / "fast", 1.0, 1)
    with_latency(place / "slow", 2.0, 2)
    done = compare("fast", "slow")
    assert done.returncode == 7, done.stderr
    assert "one run each" in done.stdout
    assert "over budget" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    for form in ("markdown", "html", "json"):
        assert "over budget by value" in compare("fast", "slow", "--format", form).stdout
    assert "in one run" in compare("fast", "slow", "--format", "markdown").stdout


def test_the_document_on_stdout_is_the_one_on_disk(place: Path, compare: Compare) -> None:
    done = compare("fast", "slow", "--json", "--out", "cmp", "--budget", "3%")
    assert done.returncode == 7, done.stderr
    comparison = Comparison.model_validate_json(done.stdout)
    assert comparison == Comparison.model_validate_json((place / "cmp/comparison.json").read_text())
    jsonschema.validate(json.loads(done.stdout), json.loads((REPOSITORY / "docs/comparison.schema.json").read_text()))
    assert comparison.command == "gputax compare fast slow --budget 3%"
    rows = {(row.scenario, row.metric): row for row in comparison.metrics}
    assert set(rows) == {
        ("offline", "throughput"), ("single-stream", "latency_mean"), ("single-stream", "latency_p50"),
        ("single-stream", "latency_p90"), ("single-stream", "latency_p99"),
    }  # fmt: skip
    median = rows["single-stream", "latency_p50"]
    assert median.overhead_percent == pytest.approx(100, abs=25)
    assert median.budget == 3.0
    recorded = {entry.scenario: entry for entry in read_document(RUN, place / "fast").benchmarks}
    assert median.base_value == pytest.approx(recorded["single_stream"].latency_p50_ms)
    assert rows["offline", "throughput"].base_value == pytest.approx(recorded["offline"].throughput_samples_per_sec)


@pytest.mark.parametrize(("percent", "code"), [(0.0, 0), (3.2, 0), (5.0, 7), (7.0, 6)])
def test_the_exit_code_is_the_verdict(place: Path, percent: float, code: int) -> None:
    with_repeats(place / "fast", 1.0, 1)
    with_repeats(place / "slow", 1.0 + percent / 100, 2)
    sides = [str(place / "fast"), str(place / "slow")]
    assert compare_verb.main(sides, standalone_mode=False) == code
    assert compare_verb.main([*sides, "--budget", "20%"], standalone_mode=False) == 0
    strict = [*sides, "--budget", "latency_mean=0%", "--budget", "20%"]
    assert compare_verb.main(strict, standalone_mode=False) == (7 if percent == 0.0 else 6)


def test_a_suite_gives_the_budgets_and_the_command_line_counts_before_it(place: Path) -> None:
    with_repeats(place / "fast", 1.0, 1)
    with_repeats(place / "slow", 1.032, 2)
    suite = place / "mine.toml"
    suite.write_text('[budget]\ndefault = "1%"\nlatency_p99 = "1ms"\n')
    sides = [str(place / "fast"), str(place / "slow"), "--suite", str(suite)]
    assert compare_verb.main([*sides, "--out", str(place / "cmp")], standalone_mode=False) == 6
    comparison = Comparison.model_validate_json((place / "cmp/comparison.json").read_text())
    rows = {row.metric: row for row in comparison.metrics}
    assert (rows["latency_mean"].budget, rows["latency_p99"].budget) == (1.0, 1.0)
    assert rows["latency_mean"].budget_source == f"given by {suite} [budget]"
    assert comparison.command.endswith(f"--suite {suite}")
    assert compare_verb.main([*sides, "--budget", "5%"], standalone_mode=False) == 0


def test_a_percentile_that_is_refused_decides_only_where_a_budget_names_it(place: Path) -> None:
    with_repeats(place / "fast", 1.0, 1, samples=500)
    sides = [str(place / "fast"), str(place / "fast")]
    assert compare_verb.main(sides, standalone_mode=False) == 0
    assert compare_verb.main([*sides, "--budget", "latency_p99=2ms"], standalone_mode=False) == 7


def test_a_pipeline_can_gate_on_it(place: Path, compare: Compare) -> None:
    with_repeats(place / "fast", 1.0, 1)
    assert compare("fast", "fast").returncode == 0


def test_unequal_runs_are_not_comparable_and_force_keeps_the_mark(place: Path, compare: Compare) -> None:
    edited(place / "slow", lambda data: [entry.update(threads=4) for entry in data["benchmarks"]])
    done = compare("fast", "slow")
    assert done.returncode == 7
    assert "threads: 1 and 4" in done.stdout
    assert "+100" not in done.stdout
    forced = compare("fast", "slow", "--force", "--json")
    assert forced.returncode == 7
    rows = Comparison.model_validate_json(forced.stdout).metrics
    assert {row.verdict for row in rows} == {"not comparable"}
    assert all(row.overhead_percent is not None for row in rows)


def test_an_invalid_run_never_passes(place: Path, compare: Compare) -> None:
    with_repeats(place / "fast", 1.0, 1)
    edited(place / "fast", lambda data: [entry.update(valid=False) for entry in data["benchmarks"]])
    done = compare("fast", "fast")
    assert done.returncode == 7
    assert "INVALID" in done.stdout


def test_a_cell_that_failed_does_not_pass_with_the_others(place: Path) -> None:
    for name, seed in (("fast", 1), ("slow", 2)):
        with_repeats(place / name, 1.0, seed)
    sides = [str(place / "fast"), str(place / "slow")]
    assert compare_verb.main(sides, standalone_mode=False) == 0
    failure = {"cell": "resnet50-server-b4-bare", "kind": "EngineError", "what": "it broke"}
    edited(place / "slow", lambda data: data.update(failures=[failure]))
    assert compare_verb.main(sides, standalone_mode=False) == 7
    edited(place / "slow", lambda data: data.update(failures=[], complete=False))
    assert compare_verb.main(sides, standalone_mode=False) == 7


def test_formats_may_be_mixed_and_never_pass_without_spread(place: Path, compare: Compare) -> None:
    record = read_document(RUN, place / "fast")
    (place / "pod.log").write_text("starting\n" + result_block(record))
    (place / "plain.txt").write_text("ResNet-50 Offline:\n  Throughput: 3,000 images/sec\n")
    others = ["pod.log", "plain.txt", "fast/cells/resnet50-offline-b4-bare"]
    done = compare("fast", *others, "--json", "--budget", "500%")
    assert done.returncode == 7, done.stderr
    comparison = Comparison.model_validate_json(done.stdout)
    assert [side.format for side in comparison.sides] == ["gputax", "pod-log", "text", "loadgen"]
    assert {row.verdict for row in comparison.metrics} == {"inconclusive"}
    assert {row.other for row in comparison.metrics} == {side.label for side in comparison.sides[1:]}
    assert all(row.overhead_percent is not None for row in comparison.metrics)


def test_two_older_files(tmp_path: Path, compare: Compare) -> None:
    slower = json.loads(json.dumps(OLDER).replace("3400", "3230"))
    for name, data in (("baseline", OLDER), ("xen", slower)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "benchmark_results.json").write_text(json.dumps(data))
    done = compare("baseline", "xen")
    assert done.returncode == 7
    assert "+5.0" in done.stdout
    assert "GPU (Tesla T4)" in done.stdout
    assert "a difference, but no interval" in " ".join(done.stdout.split())


def test_what_is_written_where(place: Path, compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    done = compare("fast", "slow", "--out", "cmp", "--format", "markdown")
    assert done.stderr.splitlines() == ["written: cmp/comparison.json", "written: cmp/comparison.md"]
    assert "one run each" in done.stdout, "people still see the table"
    assert "fast" in (place / "cmp/comparison.md").read_text()
    for name, sign in (("one.html", "<html"), ("one.txt", "one run each"), ("one.json", '"kind": "compare"')):
        compare_verb.main(["fast", "slow", "--out", name], standalone_mode=False)
        assert sign in (place / name).read_text()


def test_markdown_goes_to_stdout_when_asked(place: Path, compare: Compare) -> None:
    done = compare("fast", "slow", "--format", "markdown")
    assert done.returncode in (6, 7), done.stderr
    assert "| cell |" in done.stdout


def test_nothing_is_overwritten_unless_asked(place: Path, compare: Compare) -> None:
    (place / "mine.json").write_text("precious")
    done = compare("fast", "slow", "--out", "mine.json")
    assert done.returncode == 2
    assert "--overwrite" in done.stderr
    assert (place / "mine.json").read_text() == "precious"
    assert compare("fast", "slow", "--out", "mine.json", "--overwrite").returncode in (6, 7)
    assert (place / "mine.json").read_text().startswith("{")


@pytest.mark.parametrize("out", ["fast/benchmark_results.json", "slow/events.jsonl", "plain.txt"])
def test_results_are_never_overwritten(place: Path, compare: Compare, out: str) -> None:
    (place / "plain.txt").write_text("ResNet-50 Offline:\nThroughput: 3,000 images/sec\n")
    before = (place / out).read_bytes()
    done = compare("fast", "plain.txt", "--out", out, "--overwrite")
    assert done.returncode == 2
    assert "not written over results" in done.stderr
    assert (place / out).read_bytes() == before


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["a"], "Missing argument"),
        (["a", "b", "--budget", "much"], "is not a budget"),
        (["a", "b", "--budget", "latncy_p99=2ms"], "did you mean 'latency_p99'"),
        (["a", "b", "--format", "pdf"], "Invalid value"),
        (["a", "b", "--suite", "quik"], "did you mean 'quick'"),
        (["a", "b", "--json", "--format", "html"], "contradict"),
        (["a", "b", "--format", "html", "--out", "x.json"], "does not fit the format html"),
        (
            ["a", "b", "--out", "x.pdf"],
            "unknown kind of report '.pdf' known: .html, .md, .json, .txt",
        ),
        (["a", "b", "--format", "table", "--out", "x.pdf"], "unknown kind of report '.pdf'"),
        (["a", "b", "--json", "--out", "x.pdf"], "unknown kind of report '.pdf'"),
    ],
)
def test_a_wrong_command_line_is_refused_before_anything_is_read(words: list[str], complaint: str) -> None:
    with pytest.raises((UsageError, click.UsageError)) as raised:
        compare_verb.main(words, standalone_mode=False)
    error = raised.value
    if isinstance(error, UsageError):
        shown = f"{error.what} {error.next_step}"
    else:
        assert isinstance(error, click.UsageError)
        shown = error.format_message()
    assert complaint in shown


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "no such file or directory"),
        (b"", "the file is empty"),
        (b"\x00\x01", "a binary file"),
        (b'{"schema_version": 1, "plan', "invalid JSON"),
        (b'{"schema_version": 2}', "newer gputax"),
        (b"nothing of interest", "no known metric in this text"),
        (b"----- gputax result begin -----\n{", "truncated"),
        (b":::MLLOG {\n", "has no result"),
    ],
)
def test_a_broken_file_is_one_clear_message_and_leaves_nothing(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    content: bytes | None,
    complaint: str,
) -> None:
    monkeypatch.chdir(place)
    if content is not None:
        (place / "other").write_bytes(content)
    with pytest.raises(ResultsError, match=complaint) as raised:
        compare_verb.main(["fast", "other", "--out", "cmp"], standalone_mode=False)
    assert (raised.value.exit_code, raised.value.where) == (5, "other")
    assert capsys.readouterr().out == ""
    assert not (place / "cmp").exists()


def test_an_error_is_one_message_without_a_traceback(place: Path, compare: Compare) -> None:
    done = compare("fast", "nowhere")
    assert done.returncode == 5
    assert done.stderr.splitlines() == [
        "gputax: no such file or directory", "  where: nowhere", "  next:  name a result directory or file",
    ]  # fmt: skip
    assert done.stdout == ""


def test_a_broken_samples_file_leaves_the_other_cells_compared(place: Path, compare: Compare) -> None:
    with_latency(place / "fast", 1.0, 1)
    with_latency(place / "slow", 2.0, 2)
    (sample,) = (place / "slow/samples").glob("*offline*")
    sample.write_bytes(sample.read_bytes()[:200])
    done = compare("fast", "slow", "--json")
    assert done.returncode == 7
    rows = {row.metric: row for row in Comparison.model_validate_json(done.stdout).metrics}
    assert "cannot be read" in rows["throughput"].reason
    assert rows["throughput"].ci95_percent is None
    assert rows["latency_p50"].ci95_percent is not None


def test_a_hostile_name_stays_text_everywhere(place: Path, compare: Compare) -> None:
    hostile = "<script>alert(1)</script>\x1b[2J"
    for name in ("fast", "slow"):
        edited(place / name, lambda data: [entry.update(workload=hostile) for entry in data["benchmarks"]])
    done = compare("fast", "slow", "--out", "page.html")
    assert done.returncode in (6, 7), done.stderr
    assert "<script>alert(1)" in done.stdout
    assert "\x1b" not in done.stdout
    page = (place / "page.html").read_text()
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page
