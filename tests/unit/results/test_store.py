from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gputax.errors import GputaxError, PreflightError, ResultsError
from gputax.measure.run.documents import empty_record
from gputax.plan.cells import Cell, Setup
from gputax.results.documents.run import RECORD_NAME, RunRecord
from gputax.results.files import probe_directory, write_text
from gputax.results.reading import RUN
from gputax.results.schema import SCHEMAS, schema_text
from gputax.results.store import ResultDirectory, default_directory, read_document, read_samples

CELLS = (Cell(Setup("resnet50"), "offline", 1),)
REPOSITORY = Path(__file__).resolve().parents[3]


def record(**changes: object) -> RunRecord:
    return empty_record(CELLS, "abc", "2026-01-01T00:00:00+00:00").model_copy(update=changes)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultDirectory[RunRecord]]:
    directory = ResultDirectory(tmp_path / "r", RUN)
    yield directory
    directory.close()


def test_a_record_comes_back_whole(store: ResultDirectory[RunRecord]) -> None:
    store.write_document(record())
    assert read_document(RUN, store.path) == record()


def test_samples_come_back_whole(store: ResultDirectory[RunRecord]) -> None:
    columns = {"start_ns": np.arange(1000), "end_ns": np.arange(1000) * 7 - 5}
    store.write_samples("samples/x.parquet", columns)
    back = read_samples(store.path / "samples/x.parquet")
    assert list(back) == ["start_ns", "end_ns"]
    assert np.array_equal(back["end_ns"], columns["end_ns"])


def test_truncated_samples_are_an_error(store: ResultDirectory[RunRecord]) -> None:
    store.write_samples("x.parquet", {"a": np.arange(1000)})
    path = store.path / "x.parquet"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ResultsError, match="cannot be read"):
        read_samples(path)


def test_a_small_file_that_becomes_more_than_a_gibibyte_is_not_read(tmp_path: Path) -> None:
    """Equal values take next to nothing in Parquet: 3.9 MB became 7.2 GB in a report."""
    path = tmp_path / "bomb.parquet"
    part = pa.table({"end_ns": pa.array(np.zeros(1_000_000, dtype=np.int64))})
    with pq.ParquetWriter(path, part.schema, compression="zstd") as writer:
        for _ in range(140):
            writer.write_table(part)
    assert path.stat().st_size < 1_000_000
    with pytest.raises(
        ResultsError, match=r"140,000,000 rows and 1 column take 1\.12 GB of memory: not a result file"
    ) as caught:
        read_samples(path)
    assert caught.value.where == str(path)


@pytest.mark.parametrize(
    "values",
    [["x" * 1000] * 10, [[1, 2]] * 10, [{"a": 1}] * 10],
    ids=["text", "list", "structure"],
)
def test_samples_are_columns_of_plain_numbers(tmp_path: Path, values: list[Any]) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"end_ns": values}), path)
    with pytest.raises(ResultsError, match=r"column end_ns.* is not a column of numbers"):
        read_samples(path)


def test_a_file_of_samples_larger_than_any_of_ours_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(ResultsError, match="larger than 512 MB: not a result file"):
        read_samples(path)


def test_a_document_larger_than_any_of_ours_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b"[" + b"[]," * (23 << 20) + b"[]]")
    with pytest.raises(ResultsError, match="JSON larger than 64 MB: not a result file"):
        read_document(RUN, path)


def test_two_runs_cannot_write_into_one_directory(store: ResultDirectory[RunRecord]) -> None:
    with pytest.raises(PreflightError, match=f"another gputax .pid {os.getpid()}."):
        ResultDirectory(store.path, RUN)


def test_the_lock_is_gone_after_the_run(tmp_path: Path) -> None:
    ResultDirectory(tmp_path / "r", RUN).close()
    ResultDirectory(tmp_path / "r", RUN).close()
    assert list((tmp_path / "r").iterdir()) == []


def test_a_write_that_fails_leaves_the_old_file_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    write_text(path, "old")

    def full(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(GputaxError, match="the disk is full"):
        write_text(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["f"]


@pytest.mark.parametrize("where", ["/proc/nowhere", "/dev/null/x"])
def test_an_unwritable_directory_is_noticed_before_anything_is_measured(where: str) -> None:
    with pytest.raises(PreflightError, match="cannot write"):
        probe_directory(Path(where))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "the file is empty"),
        ("{", "invalid JSON"),
        ("\x00\x01", "a binary file"),
        ("[" * 100_000, "JSON is nested too deeply"),
        ('{"evidence": ' + "[" * 400 + "]" * 400 + "}", "JSON is nested too deeply"),
        ("[]", "not a run record"),
        ('{"schema_version": 2}', "newer gputax"),
        ('{"schema_version": 1}', "not a run record"),
    ],
)
def test_a_broken_record_is_a_clear_error(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / RECORD_NAME).write_text(text)
    with pytest.raises(ResultsError, match=complaint) as raised:
        read_document(RUN, tmp_path)
    assert RECORD_NAME in raised.value.where


def test_a_missing_record_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="no results here"):
        read_document(RUN, tmp_path)


def test_an_unknown_key_is_refused(tmp_path: Path) -> None:
    data = json.loads(record().model_dump_json()) | {"througput": 1}
    (tmp_path / RECORD_NAME).write_text(json.dumps(data))
    with pytest.raises(ResultsError, match="througput"):
        read_document(RUN, tmp_path)


def test_the_unfinished_run_of_the_same_plan_is_found_again(tmp_path: Path) -> None:
    runs: dict[str, dict[str, Any]] = {"done": {"complete": True}, "other": {"plan_id": "xyz"}, "unfinished": {}}
    for name, changes in runs.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / RECORD_NAME).write_text(record(**changes).model_dump_json())
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / RECORD_NAME).write_text("{")
    assert default_directory(tmp_path, RUN, "abc", "bare").name == "unfinished"
    assert default_directory(tmp_path, RUN, "new", "ssh:host/x").name.startswith("ssh-host-x-")


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schema_that_is_checked_in_is_the_one_in_force(name: str) -> None:
    assert (REPOSITORY / f"docs/{name}.schema.json").read_text() == schema_text(name), "make generated"
