"""The result directory is the database: lock it, read its document, and write each cell when it finishes."""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

import numpy as np
import numpy.typing as npt

from gputax.errors import PreflightError, ResultsError
from gputax.results.files import disk_error, probe_directory, replacing, write_text
from gputax.results.reading import AnyDocument, DocumentKind, Resumable, checked, read_json
from gputax.text import byte_size, counted, printable

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData

# Ten minutes of 40,000 queries per second, each a row of four columns, take 0.8 GB; every sample of ours is an int64.
LARGEST_SAMPLES_BYTES = 512 * 1024 * 1024
LARGEST_DECODED_BYTES = 1024 * 1024 * 1024
MOST_COLUMNS = 100
NUMBERS = ("INT64", "INT32", "DOUBLE", "FLOAT", "BOOLEAN")


def document_path(kind: DocumentKind[Any], place: Path) -> Path:
    """Return the path of the document of this kind: in the directory `place`, or `place` itself if that is a file."""
    return place if place.is_file() or place.suffix == ".json" else place / kind.file_name


def read_document(kind: DocumentKind[AnyDocument], place: Path) -> AnyDocument:
    """Read the document of a directory, or a file under any name; raise if it is not a gputax document."""
    path = document_path(kind, place)
    where = printable(str(path), 4096)
    if not path.exists():
        raise ResultsError(kind.missing, where=where, next_step=kind.command)
    return checked(kind, read_json(path), where)


def file_inside(directory: Path, name: str) -> Path:
    """Return the path of a file that a document names; it may only name files in its own directory."""
    path = directory / name
    if "\0" in name or not path.resolve().is_relative_to(directory.resolve()):
        raise ResultsError(
            f"the record names a file outside its directory: {printable(name)}", where=printable(str(directory), 4096)
        )
    return path


class ResultDirectory(Generic[AnyDocument]):
    """One directory that one experiment may write to: its document, and its files."""

    def __init__(self, path: Path, kind: DocumentKind[AnyDocument]) -> None:
        self.path = path
        self.kind = kind
        probe_directory(path)
        self._lock = self._take_lock()

    def _take_lock(self) -> int:
        path = self.path / ".lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise PreflightError(
                f"another gputax (pid {holder}) is writing to this directory",
                where=str(self.path),
                next_step="wait for it, or choose another --out",
            ) from error
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        return descriptor

    def close(self) -> None:
        """Release the lock."""
        (self.path / ".lock").unlink(missing_ok=True)
        os.close(self._lock)

    def discard(self) -> None:
        """Remove the files of an experiment that measured nothing; foreign files stay."""
        for name in (self.kind.file_name, "environment.json", "events.jsonl"):
            (self.path / name).unlink(missing_ok=True)
        if [entry.name for entry in self.path.iterdir()] == [".lock"]:
            (self.path / ".lock").unlink()
            self.path.rmdir()

    def holds(self, kind: DocumentKind[Any]) -> bool:
        """Whether a document of this kind is here."""
        return (self.path / kind.file_name).exists()

    def existing(self) -> AnyDocument | None:
        """Return the document that is here, if any."""
        return read_document(self.kind, self.path) if self.holds(self.kind) else None

    def write_document(self, document: AnyDocument) -> None:
        """Replace the document."""
        write_text(self.path / self.kind.file_name, document.model_dump_json(indent=2) + "\n")

    def write_json(self, name: str, data: Any) -> None:
        """Write another JSON file next to the document."""
        write_text(self.path / name, json.dumps(data, indent=2, sort_keys=True) + "\n")

    def write_text(self, name: str, text: str) -> None:
        """Write a text file, such as a LoadGen log, exactly as it was."""
        write_text(self.path / name, text)

    def write_samples(self, name: str, columns: Mapping[str, npt.NDArray[np.int64]]) -> None:
        """Write samples as Parquet: any tool reads it, and a million rows take about 6 MB."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table(dict(columns))
        with replacing(self.path / name) as temporary:
            pq.write_table(table, temporary, compression="zstd")

    def append_event(self, kind: str, **details: Any) -> None:
        """Append one line to the experiment's log."""
        line = json.dumps({"at": now_text(), "event": kind, **details}, sort_keys=True) + "\n"
        try:
            with (self.path / "events.jsonl").open("a") as diary:
                diary.write(line)
        except OSError as error:
            raise disk_error(self.path / "events.jsonl", error) from error


def read_samples(path: Path) -> dict[str, npt.NDArray[np.int64]]:
    """Read the columns that `write_samples` wrote; the file's size says nothing about how much memory they take."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if path.stat().st_size > LARGEST_SAMPLES_BYTES:
            raise ResultsError(f"larger than {LARGEST_SAMPLES_BYTES >> 20} MB: not a result file", where=str(path))
        with pq.ParquetFile(path) as file:
            _refuse_large(file.metadata, path)
            table = file.read()
    except (OSError, pa.ArrowException) as error:
        raise ResultsError(f"samples cannot be read: {error}", where=str(path)) from error
    return {name: table[name].to_numpy() for name in table.column_names}


def _refuse_large(facts: FileMetaData, path: Path) -> None:
    """Refuse what is not a few columns of numbers, or too many of them, before any of it is decoded."""
    if facts.num_columns > MOST_COLUMNS:
        raise ResultsError(f"{counted(facts.num_columns, 'column')}: not a result file", where=str(path))
    for index in range(facts.num_columns):
        column = facts.schema.column(index)
        # A list or a structure has more levels, and a text of any length takes one entry.
        if column.physical_type not in NUMBERS or column.max_repetition_level or column.max_definition_level > 1:
            raise ResultsError(f"column {printable(column.path)} is not a column of numbers", where=str(path))
    groups = [facts.row_group(index) for index in range(facts.num_row_groups)]
    rows = max(facts.num_rows, sum(group.num_rows for group in groups))
    decoded = max(8 * rows * facts.num_columns, sum(group.total_byte_size for group in groups))
    if decoded > LARGEST_DECODED_BYTES:
        columns = counted(facts.num_columns, "column")
        raise ResultsError(
            f"{counted(rows, 'row')} and {columns} take {byte_size(decoded)} of memory: not a result file",
            where=str(path),
            next_step=f"at most {byte_size(LARGEST_DECODED_BYTES)} are read",
        )


def default_directory(root: Path, kind: DocumentKind[Resumable], plan_id: str, name: str) -> Path:
    """Return the unfinished directory of the same plan if there is one, else a new one with this name and the time."""
    for path in sorted(root.glob(f"*/{kind.file_name}"), reverse=True):
        try:
            record = read_document(kind, path)
        except ResultsError:
            continue  # not a gputax file; nothing to resume
        if record.plan_id == plan_id and not record.complete:
            return path.parent
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return root / f"{re.sub(r'[^A-Za-z0-9]+', '-', name)}-{stamp}"


def now_text() -> str:
    """Return the wall-clock time for display; never used for durations."""
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")
