"""The result block in a pod's log: written, wrapped by log collectors, and read again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputax.errors import ResultsError
from gputax.results.documents.run import RunRecord
from gputax.results.importers.detect import read_source
from gputax.results.importers.pod_log import BEGIN, END, read_block, result_block

Record = Callable[..., dict[str, Any]]
PREFIXES = [
    "",
    "2026-01-01T00:00:00.123456789Z ",
    "2026-01-01T00:00:00+00:00 ",
    "[pod/gpu-benchmark-x7k2p/benchmark] ",
    "[pod/a/b] 2026-01-01T00:00:00.1Z ",
    "2026-01-01T00:00:00.123456789Z stdout F ",
    "gpu-benchmark-x7k2p benchmark > ",
]


@pytest.fixture
def block(record: Record) -> str:
    return result_block(RunRecord.model_validate(record()))


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_block_comes_back_whole_whatever_stands_before_its_lines(prefix: str, block: str, record: Record) -> None:
    text = "".join(f"{prefix}{line}\n" for line in ("Starting", *block.splitlines(), "bye"))
    found, blocks = read_block(text, "log")
    assert found == RunRecord.model_validate(record())
    assert blocks == 1


def test_every_timestamp_may_differ(block: str) -> None:
    lines = [f"2026-01-01T00:00:{number % 60:02}.{number}Z {line}" for number, line in enumerate(block.splitlines())]
    assert read_block("\r\n".join(lines), "log")[0].environment == "bare"


def test_no_line_is_longer_than_a_container_runtime_lets_through(block: str) -> None:
    assert max(map(len, block.splitlines())) < 16_000
    assert (block.splitlines()[0], block.splitlines()[-1]) == (BEGIN, END)


def test_a_saved_log_is_a_source_without_samples(tmp_path: Path, block: str) -> None:
    path = tmp_path / "k8s-baseline.log"
    path.write_text(f"loading\n{block}")
    source = read_source(path)
    assert (source.format, source.label, source.environment) == ("pod-log", "bare", "bare")
    assert source.cells[0].metrics["latency_p99"] == 13.0
    assert source.cells[0].load_samples is None
    assert source.cells[0].conditions["threads"] == 2


def test_of_several_blocks_the_last_counts(tmp_path: Path, record: Record) -> None:
    first, second = (
        result_block(RunRecord.model_validate(record({"latency_p99_ms": value}))) for value in (13.0, 14.0)
    )
    path = tmp_path / "x.log"
    path.write_text(first + "restarted\n" + second)
    source = read_source(path)
    assert source.cells[0].metrics["latency_p99"] == 14.0
    assert "2 results" in source.notices[-1].text


def test_a_block_cut_short_is_a_clear_error(tmp_path: Path, block: str) -> None:
    path = tmp_path / "x.log"
    path.write_text("hello\n" + block[:-40])
    with pytest.raises(ResultsError, match="truncated: it starts in line 2 and has no end") as raised:
        read_source(path)
    assert "after the pod has ended" in raised.value.next_step


def test_a_later_block_that_is_cut_short_does_not_hide_behind_an_earlier_one(tmp_path: Path, block: str) -> None:
    path = tmp_path / "x.log"
    path.write_text(block + block[: len(block) // 2])
    with pytest.raises(ResultsError, match="truncated"):
        read_source(path)


def test_foreign_lines_inside_a_block_are_an_error(block: str) -> None:
    lines = block.splitlines()
    with pytest.raises(ResultsError, match="invalid JSON"):
        read_block("\n".join([*lines[:5], "WARNING: something", *lines[5:]]), "log")


def test_a_block_of_a_newer_gputax_is_refused() -> None:
    with pytest.raises(ResultsError, match="newer gputax"):
        read_block(f'{BEGIN}\n{{"schema_version": 2}}\n{END}', "log")
    with pytest.raises(ResultsError, match="no result block"):
        read_block("nothing", "log")
