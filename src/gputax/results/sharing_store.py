"""Sharing experiments on disk: find, read and write `sharing.json` in a result directory."""

from __future__ import annotations

import datetime
from pathlib import Path

from gputax.errors import ResultsError, UsageError
from gputax.results.documents.sharing import SHARING_NAME, SHARING_SCHEMA_VERSION, SharingRecord
from gputax.results.files import write_text
from gputax.results.reading import checked, read_json
from gputax.results.store import RECORD_NAME, ResultDirectory


def read_sharing(directory: Path) -> SharingRecord:
    """Read a directory's sharing record, or say why it cannot be one of ours."""
    path = directory / SHARING_NAME
    if not path.exists():
        raise ResultsError("no sharing experiment here", where=str(path), next_step="gputax share --out DIR")
    return read_sharing_file(path)


def read_sharing_file(path: Path) -> SharingRecord:
    """Read a sharing record under any name, or say why it cannot be one of ours."""
    try:
        return checked(SharingRecord, read_json(path), SHARING_SCHEMA_VERSION, "a sharing experiment", str(path))
    except ResultsError as error:
        error.next_step = error.next_step or "the file was edited, or is another program's: `gputax share` writes ours"
        raise


def write_sharing(store: ResultDirectory, record: SharingRecord) -> None:
    """Replace the sharing record."""
    write_text(store.path / SHARING_NAME, record.model_dump_json(indent=2) + "\n")


def discard_sharing(store: ResultDirectory) -> None:
    """Remove what an experiment wrote that measured nothing; files of others stay."""
    (store.path / SHARING_NAME).unlink(missing_ok=True)
    store.discard()


def resumable(store: ResultDirectory, plan_id: str, *, overwrite: bool) -> SharingRecord | None:
    """Return the unfinished experiment of this plan, None where there is none; refuse a directory of something else."""
    if (store.path / RECORD_NAME).exists():
        raise UsageError(
            "this directory holds a run, not a sharing experiment",
            where=str(store.path),
            next_step="choose another --out",
        )
    if overwrite or not (store.path / SHARING_NAME).exists():
        return None
    existing = read_sharing(store.path)
    if existing.plan_id != plan_id:
        raise UsageError(
            "this directory holds another experiment",
            where=str(store.path),
            next_step="choose another --out, or add --overwrite",
        )
    if existing.complete:
        raise UsageError(
            f"this experiment is complete already ({existing.timestamp})",
            where=str(store.path),
            next_step="choose another --out, or add --overwrite to measure again",
        )
    return existing


def default_sharing_directory(root: Path, place: str, plan_id: str) -> Path:
    """Return the unfinished directory of the same plan if there is one, else a new one named by the time."""
    for path in sorted(root.glob(f"*/{SHARING_NAME}"), reverse=True):
        try:
            record = read_sharing(path.parent)
        except ResultsError:
            continue  # somebody else's file; not ours to resume
        if record.plan_id == plan_id and not record.complete:
            return path.parent
    return root / f"share-{place}-{datetime.datetime.now().strftime('%Y%m%d-%H%M%S')}"
