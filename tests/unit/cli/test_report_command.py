"""`gputax report` from directories on disk to files, and to what stdout carries."""

from __future__ import annotations

import csv
import json
import shutil
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bench.report_size import ENVIRONMENTS, write_results
from gputax.cli.report import report
from gputax.errors import GputaxError, ResultsError, UsageError
from gputax.results.documents.run import RECORD_NAME

LIMIT_KB = 2048


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five runs and four duets: 20 cells."""
    root = tmp_path_factory.mktemp("results")
    write_results(root)
    return root


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty directory, and without a network: a report that reached for it would fail."""
    monkeypatch.chdir(tmp_path)

    def refuse(*arguments: object) -> None:
        raise AssertionError("a report must not use the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def run(*words: str | Path, code: int = 0) -> Result:
    done = CliRunner().invoke(report, [str(word) for word in words], standalone_mode=False)
    if isinstance(done.exception, GputaxError):
        assert done.exception.exit_code == code
    else:
        assert done.exception is None, done.exception
        assert code == 0
    return done


def test_twenty_cells_in_one_page_below_the_limit(results: Path, tmp_path: Path) -> None:
    done = run(results, "--out", "report.html")
    size_kb = (tmp_path / "report.html").stat().st_size / 1024
    assert size_kb < LIMIT_KB
    assert f"Report: report.html ({size_kb:.0f} KB)" in done.stdout
    text = (tmp_path / "report.html").read_text()
    for environment in ENVIRONMENTS:
        assert environment in text
    assert text.count("<svg ") >= 49
    assert "k8s+proxy" in done.stdout.splitlines()[0], "the answer is on stdout too"


def test_the_default_is_a_page_beside_the_results(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results / "bare", tmp_path / "bare")
    run("bare")
    assert (tmp_path / "bare" / "report.html").is_file()
    run("bare", results / "k8s")
    assert (tmp_path / "report.html").is_file()
    run(tmp_path / "bare" / RECORD_NAME)


@pytest.mark.parametrize("words", [("--json",), ("--format", "json"), ("--out", "-", "--format", "json")])
def test_json_goes_to_stdout(results: Path, words: tuple[str, ...]) -> None:
    data = json.loads(run(results, *words).stdout)
    assert {table["name"] for table in data["tables"]} >= {"answer", "metrics", "layers", "cells", "telemetry"}


def test_csv_goes_to_stdout_and_is_one_table(results: Path) -> None:
    rows = list(csv.DictReader(run(results, "--format", "csv").stdout.splitlines()))
    assert sum(row["gputax_table"] == "cells" for row in rows) == 20
    assert sum(row["gputax_table"] == "metrics" for row in rows) == 44


@pytest.mark.parametrize("words", [(), ("--format", "html"), ("--json",)])
def test_an_unknown_ending_is_refused_whatever_the_format(results: Path, tmp_path: Path, words: list[str]) -> None:
    error = run(results, *words, "--out", "x.pdf", code=2).exception
    assert isinstance(error, UsageError)
    assert ".html, .htm, .md" in error.next_step
    assert not (tmp_path / "x.pdf").exists()


def test_the_suffix_chooses_the_format(results: Path, tmp_path: Path) -> None:
    done = run(results, "--out", "comparison.md")
    assert (tmp_path / "comparison.md").read_text().startswith("<!-- gputax report")
    charts = sorted(path.name for path in tmp_path.glob("*.svg"))
    assert charts == ["comparison-overview-1.svg", *(f"comparison-waterfall-{i}.svg" for i in range(1, 5))]
    for chart in charts:
        assert chart in done.stdout


def test_the_table_is_for_people(results: Path) -> None:
    done = run(results, "--format", "table")
    assert "Each layer by the metric that decides it" in done.stdout
    assert "\x1b" not in done.stdout


def test_a_foreign_file_is_kept_and_our_own_is_written_anew(results: Path, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("my thesis")
    done = run(results / "bare", "--out", "report.html", code=2)
    assert isinstance(done.exception, UsageError)
    assert (tmp_path / "report.html").read_text() == "my thesis"
    run(results / "bare", "--out", "report.html", "--overwrite")
    run(results / "bare", "--out", "report.html")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--format", "pdf"), "unknown format 'pdf'"),
        (("--out", "report.pdf"), "unknown kind of report"),
        (("--json", "--format", "csv"), "contradict"),
    ],
)
def test_a_wrong_command_line_is_refused_before_anything_is_read(words: tuple[str, ...], message: str) -> None:
    done = run("nowhere", *words, code=2)
    assert isinstance(done.exception, UsageError)
    assert message in done.exception.what


@pytest.mark.parametrize("content", ["", "{", "\0\1\2", '{"schema_version": 99}'])
def test_broken_results_are_said_to_be_so_and_nothing_is_written(tmp_path: Path, content: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / RECORD_NAME).write_text(content)
    done = run("run", code=5)
    assert isinstance(done.exception, ResultsError)
    assert RECORD_NAME in done.exception.where
    assert [path.name for path in (tmp_path / "run").iterdir()] == [RECORD_NAME]


def test_one_broken_directory_among_good_ones_is_named(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results / "bare", tmp_path / "all" / "bare")
    (tmp_path / "all" / "worse").mkdir()
    (tmp_path / "all" / "worse" / RECORD_NAME).write_text("{")
    done = run("all", code=5)
    assert isinstance(done.exception, ResultsError)
    assert "worse" in done.exception.where


def test_results_are_only_read(results: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in results.rglob("*") if path.is_file()}
    run(results, "--out", "r.html")
    assert {path: path.read_bytes() for path in results.rglob("*") if path.is_file()} == before
