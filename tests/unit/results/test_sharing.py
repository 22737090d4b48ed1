"""Sharing experiments on disk: read, refused, found again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gputax.errors import ResultsError
from gputax.results.documents.sharing import SHARING_NAME, SharingRecord
from gputax.results.reading import SHARING
from gputax.results.store import ResultDirectory, default_directory, read_document


def record(plan_id: str = "p", complete: bool = False) -> SharingRecord:
    return SharingRecord(
        gputax_version="0", timestamp="2026-01-01", complete=complete, plan_id=plan_id, plan={}, place="bare",
        workload="yolos-small", device_label="CPU (x), not a GPU",
    )  # fmt: skip


def test_what_was_written_is_read_from_the_directory_and_from_the_file(tmp_path: Path) -> None:
    store = ResultDirectory(tmp_path / "share-1", SHARING)
    store.write_document(record())
    store.close()
    assert read_document(SHARING, store.path) == record()
    assert read_document(SHARING, store.path / SHARING_NAME) == record()


def test_the_unfinished_directory_is_found_again_and_strangers_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / SHARING_NAME).write_text("{}")
    for name, there in (("a", record("q")), ("b", record()), ("c", record(complete=True))):
        (tmp_path / name).mkdir()
        (tmp_path / name / SHARING_NAME).write_text(there.model_dump_json())
    assert default_directory(tmp_path, SHARING, "p", "share-bare") == tmp_path / "b"
    assert default_directory(tmp_path, SHARING, "new", "share-k8s").name.startswith("share-k8s-")


def test_nothing_there_names_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="no sharing experiment") as raised:
        read_document(SHARING, tmp_path)
    assert "gputax share" in raised.value.next_step


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / SHARING_NAME).write_text(json.dumps({**record().model_dump(), "schema_version": 2}))
    with pytest.raises(ResultsError, match="newer gputax"):
        read_document(SHARING, tmp_path)


def test_a_file_that_is_not_one_says_who_writes_ours(tmp_path: Path) -> None:
    (tmp_path / SHARING_NAME).write_text('{"schema_version": 1}')
    with pytest.raises(ResultsError, match="not a sharing experiment") as raised:
        read_document(SHARING, tmp_path)
    assert "create one with `gputax share`" in raised.value.next_step
