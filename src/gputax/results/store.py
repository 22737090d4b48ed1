"""The result directory is the database: lock it, read it, and write each cell when it ends."""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gputax.errors import PreflightError, ResultsError
from gputax.results.documents.run import SCHEMA_VERSION, RunRecord
from gputax.results.files import disk_error, probe_directory, replacing, write_text
from gputax.results.reading import checked, read_json

RECORD_NAME = "benchmark_results.json"


def read_record(directory: Path) -> RunRecord:
    """Read a directory's run record, or say why it cannot be one of ours."""
    path = directory / RECORD_NAME
    if not path.exists():
        raise ResultsError("no results here", where=str(path), next_step="gputax run --out DIR")
    return record_from_data(read_json(path), str(path))


def record_from_data(data: Any, where: str) -> RunRecord:
    """Check a parsed record, or say what is wrong with it."""
    return checked(RunRecord, data, SCHEMA_VERSION, "a run record", where)


class ResultDirectory:
    """One directory that one run may write to."""

    def __init__(self, path: Path) -> None:
        self.path = path
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
        """Let others write here."""
        (self.path / ".lock").unlink(missing_ok=True)
        os.close(self._lock)

    def discard(self) -> None:
        """Remove what a run wrote that measured nothing; files of others stay."""
        for name in (RECORD_NAME, "environment.json", "events.jsonl"):
            (self.path / name).unlink(missing_ok=True)
        if [entry.name for entry in self.path.iterdir()] == [".lock"]:
            (self.path / ".lock").unlink()
            self.path.rmdir()

    def existing(self) -> RunRecord | None:
        """Return the record that lies here, if any."""
        return read_record(self.path) if (self.path / RECORD_NAME).exists() else None

    def write_record(self, record: RunRecord) -> None:
        """Replace the run record."""
        write_text(self.path / RECORD_NAME, record.model_dump_json(indent=2) + "\n")

    def write_json(self, name: str, data: Any) -> None:
        """Write one more document beside the record."""
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
        """Add one line to the run's diary."""
        line = json.dumps({"at": now_text(), "event": kind, **details}, sort_keys=True) + "\n"
        try:
            with (self.path / "events.jsonl").open("a") as diary:
                diary.write(line)
        except OSError as error:
            raise disk_error(self.path / "events.jsonl", error) from error


def read_samples(path: Path) -> dict[str, npt.NDArray[np.int64]]:
    """Read the columns that `write_samples` wrote."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise ResultsError(f"samples cannot be read: {error}", where=str(path)) from error
    return {name: table[name].to_numpy() for name in table.column_names}


def default_directory(root: Path, environment: str, plan: str) -> Path:
    """Return the unfinished directory of the same plan if there is one, else a new one named by the time."""
    for record_path in sorted(root.glob(f"*/{RECORD_NAME}"), reverse=True):
        try:
            record = read_record(record_path.parent)
        except ResultsError:
            continue  # somebody else's file; not ours to resume
        if record.plan_id == plan and not record.complete:
            return record_path.parent
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return root / f"{re.sub(r'[^A-Za-z0-9]+', '-', environment)}-{stamp}"


def now_text() -> str:
    """Return the wall-clock time for people; durations never come from it."""
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")
