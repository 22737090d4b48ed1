"""`gputax report` on sharing directories: alone, among runs and duets, to files and to stdout."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gputax.cli.report import report
from gputax.results.documents.comparison import COMPARISON_NAME
from gputax.results.documents.sharing import SHARING_NAME
from gputax.results.files import write_text
from gputax.results.reading import RUN
from gputax.results.store import ResultDirectory
from tests.builders.documents import CPU, benchmark, columns, comparison, record
from tests.builders.shared_documents import GPU, gpu_record, neighbours_record, sharing_record


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the tour leaves, made up: a run, a duet, tenants and neighbours; and no network."""
    monkeypatch.chdir(tmp_path)

    def refuse(*arguments: object) -> None:
        raise AssertionError("a report must not use the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    store = ResultDirectory(tmp_path / "results" / "bare", RUN)
    made = benchmark()
    store.write_document(record(made))
    store.write_samples(made.samples_file, columns())
    write_text(store.path / made.telemetry_file, json.dumps({"time_ns": [0, 1], "own_busy_percent": [None, 5.0]}))
    store.close()
    root = tmp_path / "results"
    write_text(root / "duet" / COMPARISON_NAME, comparison().model_dump_json())
    write_text(root / "share" / SHARING_NAME, sharing_record().model_dump_json())
    write_text(root / "near" / SHARING_NAME, neighbours_record().model_dump_json())
    return root


def run(*words: str | Path) -> Result:
    done = CliRunner().invoke(report, [str(word) for word in words], standalone_mode=False)
    assert done.exception is None, done.exception
    return done


def test_one_page_holds_run_duet_tenants_and_neighbours(results: Path, tmp_path: Path) -> None:
    done = run(results / "bare", results / "duet", results / "share", results / "near")
    text = (tmp_path / "report.html").read_text()
    for anchor in ("answer", "sharing", "neighbours", "tenants", "cells", "pairs"):
        assert f'id="{anchor}"' in text
    assert "7 tenants of yolos-small" in " ".join(done.stdout.split())
    assert (tmp_path / "report.html").stat().st_size < 2 * 1024 * 1024


def test_a_sharing_directory_gets_its_page_beside_its_document(results: Path) -> None:
    done = run(results / "share")
    assert (results / "share" / "report.html").is_file()
    assert done.stdout.startswith("7 tenants of yolos-small: cpu-quota (stand-in, ")
    assert CPU in " ".join(done.stdout.split())
    assert json.loads((results / "share" / SHARING_NAME).read_text())["kind"] == "sharing", "untouched"


def test_markdown_goes_with_its_charts(results: Path, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="charts need vl-convert-python")
    run(results / "share", "--out", "comparison.md")
    drawn = sorted(file.name for file in tmp_path.glob("comparison-*.svg"))
    kinds = ("overview", "sharing-fairness", "sharing-latency", "sharing-p99", "sharing-throughput")
    assert drawn == [f"comparison-{kind}-1.svg" for kind in kinds]
    assert "| technique | 7 tenants | 5 tenants | 3 tenants | 1 tenant |" in (tmp_path / "comparison.md").read_text()


def test_devices_stay_apart_in_json(results: Path) -> None:
    write_text(results / "gpu" / SHARING_NAME, gpu_record().model_dump_json())
    data = json.loads(run(results / "share", results / "gpu", "--json").stdout)
    assert data["devices"] == [CPU, GPU]
    overview, *charts = data["charts"]
    assert overview["title"] == f"Slowdown by tenants on 2 devices on {CPU}; {GPU}", "its rows name their own"
    for chart in charts:
        assert chart["title"].endswith((f"on {CPU}", f"on {GPU}"))


def test_the_same_files_make_the_same_page(results: Path, tmp_path: Path) -> None:
    run(results, "--out", "report.html")
    first = (tmp_path / "report.html").read_bytes()
    run(results, "--out", "report.html")
    assert (tmp_path / "report.html").read_bytes() == first
