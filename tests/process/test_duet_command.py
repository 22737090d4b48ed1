"""`gputax duet` with real workers and programmed delays."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from gputax.results.documents.comparison import Comparison
from gputax.results.store import read_samples
from tests.standins.started import start, wait_for, workers_of

Gputax = Callable[..., subprocess.CompletedProcess[str]]
REPOSITORY = Path(__file__).resolve().parents[2]
TWO_MS = "synthetic:latency_us=2000"


def test_a_budget_for_a_layer_that_neither_side_has_is_in_the_document(gputax: Gputax) -> None:
    done = gputax(
        "duet", "bare", "bare", "--engine", TWO_MS, "--budget", "xen=8%", "--max-time", "5", "--no-control", "--json",
        "--out", "d",
    )  # fmt: skip
    text = "the budget for xen was not used: nothing that is compared has it and its base has not"
    warnings = [
        each.text for each in Comparison.model_validate_json(done.stdout).warnings if each.code == "unused-budget"
    ]
    assert warnings == [text]
    assert text in done.stderr


def test_an_injected_overhead_comes_back_with_its_proof(gputax: Gputax, tmp_path: Path) -> None:
    # Milliseconds enough that a late wake-up on a busy machine, which adds to both sides, does not hide the 20 %; and
    # time enough there for six restarts, while elsewhere it ends long before, at its first look.
    done = gputax(
        "duet", "bare", "bare", "--engine", "synthetic:latency_us=10000", "--engine-b", "synthetic:latency_us=12000",
        "--budget", "5%", "--max-time", "90", "--out", "d", "--json",
    )  # fmt: skip
    assert done.returncode == 6, done.stderr
    comparison = Comparison.model_validate_json(done.stdout)
    rows = {row.metric: row for row in comparison.metrics}
    row = rows["latency_p50"]
    assert row.verdict == "fail"
    assert (row.restarts or 0) >= 5
    assert row.overhead_percent is not None
    assert 10.0 < row.overhead_percent < 30.0, "20 % was injected; the host's stalls hit both sides"
    assert row.ci95_percent is not None
    assert row.paired
    assert (row.pairs or 0) >= 10
    assert comparison.resolution is not None
    assert comparison.settings["slot_runs"] >= 1
    assert comparison.settings["slot_dropped"] == 1
    assert [side.evidence["active"] for side in comparison.sides] == [True, True]
    assert comparison.sides[0].evidence["pid"] != comparison.sides[1].evidence["pid"]
    assert all("not a GPU" in side.device_label for side in comparison.sides)

    schema = json.loads((REPOSITORY / "docs/comparison.schema.json").read_text())
    jsonschema.validate(json.loads(done.stdout), schema)
    directory = tmp_path / "d"
    assert {path.name for path in directory.iterdir()} == {
        "comparison.json", "pairs.parquet", "samples-a.parquet", "samples-b.parquet", "environment-a.json",
        "environment-b.json",
    }  # fmt: skip
    formats = (REPOSITORY / "docs/formats.md").read_text()
    for name in ("pairs.parquet", "samples-a.parquet"):
        assert all(f"`{column}`" in formats for column in read_samples(directory / name))
    assert Comparison.model_validate_json((directory / "comparison.json").read_text()) == comparison
    pairs = read_samples(directory / "pairs.parquet")
    assert len(pairs["a_mean_ns"]) == row.pairs
    again = 100 * (pairs["b_mean_ns"].sum() / pairs["a_mean_ns"].sum() - 1)
    assert rows["latency_mean"].overhead_percent == pytest.approx(again, abs=0.01), "computed again from the pairs"
    a, b = (np.sort(read_samples(directory / f"samples-{side}.parquet")["latency_ns"]) for side in "ab")
    again = 100 * (b[len(b) // 2] / a[len(a) // 2] - 1)
    assert row.overhead_percent == pytest.approx(again, abs=0.01), "and the median from the samples"
    assert set(pairs["restart"]) == set(range(comparison.settings["restarts"] + 1))
    assert min(pairs["a_run_wait_ns"]) >= -1


@pytest.mark.parametrize("scenario", ["offline", "server"])
def test_loadgen_scenarios_are_paired_too(gputax: Gputax, scenario: str) -> None:
    done = gputax(
        "duet", "bare", "bare", "--engine", TWO_MS, "--engine-b", "synthetic:latency_us=6000", "--scenario", scenario,
        "--batch", "2", "--max-time", "30", "--no-control", "--out", "d", "--json",
    )  # fmt: skip
    assert done.returncode in (6, 7), done.stderr
    comparison = Comparison.model_validate_json(done.stdout)
    row = comparison.metrics[0]
    assert row.metric == ("throughput" if scenario == "offline" else "latency_p50")
    assert row.overhead_percent is not None
    assert row.overhead_percent > 15
    assert comparison.resolution is None
    assert comparison.settings["loadgen_slot_s"] == 1.5


def test_the_table_answers_first(gputax: Gputax) -> None:
    done = gputax("duet", "bare", "bare", "--engine", TWO_MS, "--max-time", "60", "--budget", "50%", "--out", "d")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("bare (B) vs bare · resnet50 single-stream · CPU (programmed delay")
    assert re.search(r"^p50 +[\d.]+ → [\d.]+ ms .* ≤ [−\d.]+ % +50 %  ✓ pass$", done.stdout, re.MULTILINE)
    assert re.search(r"^Noise: ±[\d.]+ % \(A against A, \d+ pairs in [\d.]+ s", done.stdout, re.MULTILINE)
    assert "\nEvidence: bare: nothing to prove.\n" in done.stdout
    assert done.stdout.endswith("Saved: d · Details: gputax report d\n")
    assert "starting bare and bare (B), and A again for the A/A control" in done.stderr


@pytest.mark.parametrize(("words", "code"), [([], 7), (["--budget", "90%"], 7), (["--suite", "other.toml"], 0)])
def test_a_refused_percentile_decides_only_where_a_budget_names_it(
    gputax: Gputax, tmp_path: Path, words: list[str], code: int
) -> None:
    (tmp_path / "mine.toml").write_text('[budget]\ndefault = "80%"\nlatency_p99 = "50ms"\n')
    (tmp_path / "other.toml").write_text('[budget]\ndefault = "80%"\n')
    # 20 ms a request: until its first look far fewer than the 662 that p99 needs.
    done = gputax(
        "duet", "bare", "bare", "--engine", "synthetic:latency_us=20000", "--max-time", "20", "--no-control",
        "--suite", "mine.toml", *words, "--out", "d", "--json",
    )  # fmt: skip
    rows = {row.metric: row for row in Comparison.model_validate_json(done.stdout).metrics}
    assert done.returncode == code, rows
    assert rows["latency_p50"].verdict == "pass"
    assert rows["latency_p50"].budget == (90.0 if "--budget" in words else 80.0)
    assert "662" in rows["latency_p99"].reason
    assert rows["latency_p99"].decides is (code == 7)
    assert rows["latency_p99"].budget == (50.0 if code == 7 else 2.0)


def test_a_side_that_dies_costs_one_pair_and_not_the_duet(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "gputax", "duet", "bare", "bare", "--engine", "synthetic:latency_us=200000",
         "--max-time", "15", "--no-control", "--width", "0.01%", "--out", "d", "--json"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr
    while "measuring" not in process.stderr.readline():
        assert process.poll() is None
    time.sleep(1.0)
    os.kill(max(workers_of(process.pid)), signal.SIGKILL)
    out, errors = process.communicate(timeout=60)
    assert process.returncode in (0, 6, 7), errors
    document = json.loads(out)
    assert len(document["settings"]["lost_pairs"]) == 1
    assert "killed by signal 9" in document["settings"]["lost_pairs"][0]
    assert any(warning["code"] == "lost-pairs" for warning in document["warnings"])


def test_other_processes_that_work_beside_it_are_told(gputax: Gputax) -> None:
    hog = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        words = ("--engine", TWO_MS, "--max-time", "5", "--no-control", "--out", "d", "--json")
        done = gputax("duet", "bare", "bare", *words)
    finally:
        hog.kill()
        hog.wait()
    warnings = [each for each in json.loads(done.stdout)["warnings"] if each["code"] == "busy-neighbours"]
    assert [each["text"].partition(":")[0] for each in warnings] == ["bare", "bare (B)"]
    assert all(each["value"] > 25 for each in warnings), "one process that never stops, on a machine that may be busy"


def wait_for_pairs(process: subprocess.Popen[str], least: int) -> None:
    """Read the progress up to a line that tells of so many pairs."""
    seen = 0
    while seen < least:
        found = re.search(r"(\d+) pairs, .*\n$", wait_for(process, " pairs, "))
        assert found
        seen = int(found[1])


def interrupted(
    tmp_path: Path, *words: str, after: str, pairs: int = 0, signals: int = 1
) -> subprocess.CompletedProcess[str]:
    """Start a duet of a minute and interrupt it once its progress has said this, and then reported so many pairs."""
    process = start(
        tmp_path, "duet", "bare", "bare", "--engine", TWO_MS, "--max-time", "60", "--width", "0.001%", *words
    )
    wait_for(process, after)
    wait_for_pairs(process, pairs)
    for _ in range(signals):
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    out, errors = process.communicate(timeout=30)
    return subprocess.CompletedProcess([], process.returncode, out, errors)


def test_an_interrupted_duet_keeps_its_pairs_and_says_so(tmp_path: Path) -> None:
    # With fewer than 30 there would be nothing to keep.
    done = interrupted(tmp_path, "--no-control", "--out", "d", "--json", after="measuring", pairs=30)
    assert done.returncode == 130, done.stderr
    assert "SIGINT: stopping after this pair; press again to stop now" in done.stderr
    comparison = Comparison.model_validate_json(done.stdout)
    assert comparison == Comparison.model_validate_json((tmp_path / "d/comparison.json").read_text())
    (row,) = [each for each in comparison.metrics if each.metric == "latency_mean"]
    assert (row.pairs or 0) >= 30
    assert comparison.settings["stopped_because"] == "interrupted"
    (warning,) = [each for each in comparison.warnings if each.code == "interrupted"]
    assert f"interrupted after {row.pairs} pairs" in warning.text
    assert [side.evidence["active"] for side in comparison.sides] == [True, True], "proven as ever"


@pytest.mark.parametrize(
    ("words", "after"),
    [
        (("--no-control",), "starting bare and bare (B)"),
        ((), "A again for the A/A control"),
        (("--no-control", "--scenario", "offline"), "measuring"),
    ],
)
def test_interrupted_before_there_is_an_interval_nothing_is_kept(
    tmp_path: Path, words: tuple[str, ...], after: str
) -> None:
    done = interrupted(tmp_path, *words, "--out", "d", after=after)
    assert done.returncode == 130, done.stderr
    assert "nothing was kept" in done.stderr
    assert not (tmp_path / "d").exists()


def test_a_second_interrupt_ends_at_once(tmp_path: Path) -> None:
    words = ("--scenario", "offline", "--no-control", "--out", "d")  # a slot takes 1.5 s
    done = interrupted(tmp_path, *words, after="measuring", signals=2)
    assert done.returncode == 130, done.stderr
    assert not (tmp_path / "d").exists()


def test_unequal_sides_are_refused(gputax: Gputax, tmp_path: Path) -> None:
    # B's worker finds another interpreter environment only in a real second place; here the sizes differ by engine.
    done = gputax(
        "duet",
        "bare",
        "bare",
        "--engine",
        TWO_MS,
        "--engine-b",
        "onnx",
        "--max-time",
        "6",
        "--no-control",
        "--out",
        "d",
    )
    assert done.returncode == 3, done.stdout
    assert "not comparable" in done.stderr
    assert "precision" in done.stderr
    assert not (tmp_path / "d").exists()


def test_an_interrupt_leaves_nothing_behind(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "gputax", "duet", "bare", "bare", "--engine", TWO_MS, "--out", "d"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr
    while "measuring" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "run it again" in errors
    assert not (tmp_path / "d").exists()


def test_an_old_answer_is_not_overwritten(gputax: Gputax, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/comparison.json").write_text("{}")
    done = gputax("duet", "bare", "bare", "--engine", TWO_MS, "--out", "d")
    assert done.returncode == 2
    assert "already contains a comparison" in done.stderr
    assert (tmp_path / "d/comparison.json").read_text() == "{}"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["bare", "bear"], "did you mean 'bare'?"),
        (["bare"], "Missing argument 'B'"),
        (["bare", "bare", "--budget", "lots"], "is not a budget"),
        (["bare", "bare", "--budget", "p98=2ms"], "unknown metric, layer or environment 'p98'"),
        (["bare", "bare", "--width", "thin"], "is not a percentage"),
        (["bare", "bare", "--suite", "quik"], "did you mean 'quick'?"),
        (["bare", "bare", "--scenario", "sever"], "did you mean 'server'?"),
        (["bare", "bare", "--engine", "onxx"], "did you mean 'onnx'?"),
    ],
)
def test_mistakes(gputax: Gputax, words: list[str], complaint: str) -> None:
    done = gputax("duet", *words)
    assert done.returncode == 2
    assert complaint in done.stderr
