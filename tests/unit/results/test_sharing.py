"""Sharing experiments on disk: read, resumed, refused, found again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputax.errors import ResultsError, UsageError
from gputax.results.documents.sharing import SHARING_NAME, SharingRecord
from gputax.results.schema import schema_text
from gputax.results.sharing_store import (
    default_sharing_directory,
    discard_sharing,
    read_sharing,
    resumable,
    write_sharing,
)
from gputax.results.store import RECORD_NAME, ResultDirectory

DOCS = Path(__file__).resolve().parents[3] / "docs"


def record(plan_id: str = "p", complete: bool = False) -> SharingRecord:
    return SharingRecord(
        gputax_version="0", timestamp="2026-01-01", complete=complete, plan_id=plan_id, plan={}, place="bare",
        workload="yolos-small", device_label="CPU (x), not a GPU",
    )  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultDirectory]:
    directory = ResultDirectory(tmp_path / "share-1")
    yield directory
    if (directory.path / ".lock").exists():
        directory.close()


def test_what_was_written_is_read(store: ResultDirectory) -> None:
    write_sharing(store, record())
    assert read_sharing(store.path) == record()


def test_an_unfinished_experiment_of_the_same_plan_goes_on(store: ResultDirectory) -> None:
    assert resumable(store, "p", overwrite=False) is None
    write_sharing(store, record())
    assert resumable(store, "p", overwrite=False) == record()
    assert resumable(store, "p", overwrite=True) is None


@pytest.mark.parametrize(
    ("there", "complaint"), [(record("q"), "another experiment"), (record(complete=True), "complete already")]
)
def test_another_or_a_complete_experiment_is_refused(
    store: ResultDirectory, there: SharingRecord, complaint: str
) -> None:
    write_sharing(store, there)
    with pytest.raises(UsageError, match=complaint) as raised:
        resumable(store, "p", overwrite=False)
    assert "--overwrite" in raised.value.next_step


def test_the_directory_of_a_run_is_refused_even_with_overwrite(store: ResultDirectory) -> None:
    store.write_text(RECORD_NAME, "{}")
    with pytest.raises(UsageError, match="holds a run"):
        resumable(store, "p", overwrite=True)


def test_an_experiment_that_measured_nothing_leaves_nothing(store: ResultDirectory) -> None:
    write_sharing(store, record())
    store.append_event("sharing started")
    discard_sharing(store)
    assert not store.path.exists()


def test_the_unfinished_directory_is_found_again_and_strangers_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / SHARING_NAME).write_text("{}")
    for name, there in (("a", record("q")), ("b", record()), ("c", record(complete=True))):
        (tmp_path / name).mkdir()
        (tmp_path / name / SHARING_NAME).write_text(there.model_dump_json())
    assert default_sharing_directory(tmp_path, "bare", "p") == tmp_path / "b"
    assert default_sharing_directory(tmp_path, "k8s", "new").name.startswith("share-k8s-")


def test_nothing_there_names_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="no sharing experiment") as raised:
        read_sharing(tmp_path)
    assert "gputax share" in raised.value.next_step


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / SHARING_NAME).write_text(json.dumps({**record().model_dump(), "schema_version": 2}))
    with pytest.raises(ResultsError, match="newer gputax"):
        read_sharing(tmp_path)


def test_the_schema_that_is_checked_in_is_that_of_the_code() -> None:
    assert (DOCS / "sharing.schema.json").read_text() == schema_text("sharing")
