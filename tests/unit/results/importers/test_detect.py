"""Which format a path holds is seen by its content, and what is none says so."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from gputax.errors import ResultsError
from gputax.results.importers import source
from gputax.results.importers.detect import FORMATS, SERVING, format_of, read_source
from gputax.results.importers.source import Format, Place

MakeRun = Callable[..., Path]


def test_every_format_is_registered() -> None:
    assert set(FORMATS) == {"gputax", "loadgen", "older-json", "text", "pod-log", *SERVING}
    assert set(FORMATS) == set(get_args(Format))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "the file is empty"),
        (b" \n\t\n", "the file is empty"),
        (b"\x7fELF\x00\x01\x02", "a binary file"),
        ("Throughput: 5 ops/s".encode("utf-16"), "a binary file"),
        (b"{", "invalid JSON"),
        (b'{"schema_version": 1, "environ', "invalid JSON"),
        (b'{"a": 1}\n{"b": 2}', "invalid JSON"),
        (b'{"hello": "world"}', "no results in a known format"),
        (b'{"schema_version": 99}', "newer gputax"),
        (b'{"schema_version": "one"}', "not a run record"),
        (b'{"schema_version": 1, "kind": "duet", "sides": []}', "this is a comparison"),
        (b'{"a":' * 200_000, "nested too deeply"),
        (b"\xff\xfe\xfd garbage", "no known metric in this text"),
        (b"[]", "no known metric in this text"),
    ],
)
def test_a_file_that_is_no_result(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ResultsError, match=complaint) as raised:
        read_source(path)
    assert str(path) in raised.value.where


@pytest.mark.parametrize("content", ["", "{", "[]", '"text"', "3", '{"schema_version": 1}', '{"schema_version": 7}'])
def test_a_directory_with_a_broken_record(tmp_path: Path, content: str) -> None:
    (tmp_path / "benchmark_results.json").write_text(content)
    with pytest.raises(ResultsError) as raised:
        read_source(tmp_path)
    assert "benchmark_results.json" in raised.value.where


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="no such file or directory"):
        read_source(tmp_path / "nowhere")
    with pytest.raises(ResultsError, match="no results in a known format") as raised:
        read_source(tmp_path)
    assert "benchmark_results.json" in raised.value.next_step


def test_results_that_lie_deeper_are_pointed_at(tmp_path: Path, make_run: MakeRun) -> None:
    make_run("runs/one")
    with pytest.raises(ResultsError) as raised:
        read_source(tmp_path / "runs")
    assert str(tmp_path / "runs/one") in raised.value.next_step


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ResultsError, match="neither a file nor a directory"):
        read_source(tmp_path / "pipe")
    with pytest.raises(ResultsError, match="neither a file nor a directory"):
        read_source(Path("/dev/zero"))


def test_an_endless_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "LARGEST_BYTES", 10)
    (tmp_path / "x").write_text("p99: 3 ms and more")
    with pytest.raises(ResultsError, match="not a result file"):
        read_source(tmp_path / "x")


def test_an_unreadable_name_is_an_error_and_printed_safely(tmp_path: Path) -> None:
    with pytest.raises(ResultsError) as raised:
        read_source(tmp_path / "a\x1b[31m\nb")
    assert raised.value.where.isprintable()
    with pytest.raises(ResultsError, match="cannot be read"):
        read_source(tmp_path / "a\0b")


def test_our_own_events_do_not_make_a_directory_that_of_another_tool(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text('{"event": "started", "at": "2026-11-17T15:00:00+00:00"}\n')
    assert format_of(Place(tmp_path)) is None
    (tmp_path / "events.jsonl").write_text('{"event_type": "issued", "timestamp_ns": 1}\n')
    assert format_of(Place(tmp_path)) == "mlperf-endpoints"


def test_a_file_without_read_permission(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("p99: 3 ms")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("root may read everything")
    with pytest.raises(ResultsError, match="cannot be read"):
        read_source(path)


def test_a_mark_of_byte_order_is_no_content(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(b"\xef\xbb\xbfp99: 3 ms")
    assert read_source(path).cells[0].metrics == {"latency_p99": 3.0}


def test_a_log_that_begins_with_json_lines_is_still_a_log(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    summary = "MLPerf Results Summary\nScenario : Offline\nSamples per second: 5\nResult is : VALID\n"
    path.write_text(json.dumps({"level": "info"}) + "\n" + summary)
    assert read_source(path).format == "loadgen"


def test_a_duets_directory_is_sent_to_the_report(tmp_path: Path) -> None:
    (tmp_path / "comparison.json").write_text("{}")
    with pytest.raises(ResultsError, match="no results in a known format") as raised:
        read_source(tmp_path)
    assert "`gputax report` shows it" in raised.value.next_step
