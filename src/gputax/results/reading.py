"""Read a gputax document of any kind: its file, JSON, version and keys, each with an error that names the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from gputax.errors import ResultsError
from gputax.results.documents.base import Document
from gputax.results.documents.comparison import COMPARISON_NAME, RESOLUTION_NAME, Comparison, Resolution
from gputax.results.documents.run import RECORD_NAME, RunRecord
from gputax.results.documents.selftest import SELFTEST_NAME, SelftestRecord
from gputax.results.documents.sharing import SHARING_NAME, SharingRecord, refuse_nonsense
from gputax.text import printable

# A document of a thousand cells takes some MB. Parsed, small lists take twenty times their size in the file.
LARGEST_JSON_BYTES = 64 * 1024 * 1024
DEEPEST_JSON = 64

AnyDocument = TypeVar("AnyDocument", bound=Document)
Resumable = TypeVar("Resumable", RunRecord, SharingRecord)
"""The record of an experiment that grows cell by cell and can be resumed with the same command."""


def _anything(document: Document, where: str) -> None:
    """Accept every document that has the right keys."""


@dataclass(frozen=True)
class DocumentKind(Generic[AnyDocument]):
    """One kind of document, as the store reads and writes it."""

    document: type[AnyDocument]
    file_name: str
    schema_version: int
    title: str
    """With its article, e.g. `a run record`."""
    experiment: str
    """The experiment that wrote it, as in `this directory already contains a run`."""
    missing: str
    """The message for a directory without one."""
    command: str
    """The command that writes one."""
    if_broken: str = ""
    """The next step if the document breaks a rule that has none."""
    check: Callable[[AnyDocument, str], None] = _anything
    """Raises if a figure is impossible; the second argument is the location of the document."""


RUN = DocumentKind(
    RunRecord,
    RECORD_NAME,
    schema_version=1,
    title="a run record",
    experiment="run",
    missing="no results here",
    command="gputax run --out DIR",
)
COMPARISON = DocumentKind(
    Comparison,
    COMPARISON_NAME,
    schema_version=1,
    title="a comparison",
    experiment="comparison",
    missing="no comparison here",
    command="gputax duet A B --out DIR",
)
RESOLUTION = DocumentKind(
    Resolution,
    RESOLUTION_NAME,
    schema_version=1,
    title="an A/A control",
    experiment="A/A control",
    missing="no A/A control here",
    command="gputax demo --out DIR",
)
SHARING = DocumentKind(
    SharingRecord,
    SHARING_NAME,
    schema_version=1,
    title="a sharing experiment",
    experiment="sharing experiment",
    missing="no sharing experiment here",
    command="gputax share --out DIR",
    if_broken="the file was edited or written by another program: create one with `gputax share`",
    check=refuse_nonsense,
)
SELFTEST = DocumentKind(
    SelftestRecord,
    SELFTEST_NAME,
    schema_version=1,
    title="a self-test",
    experiment="self-test",
    missing="no self-test here",
    command="gputax selftest --out DIR",
)


def read_json(path: Path) -> Any:
    """Read a JSON file, or raise with the reason."""
    where = printable(str(path), 4096)
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_JSON_BYTES + 1)
    except OSError as error:
        raise ResultsError(f"cannot be read: {error.strerror or error}", where=where) from error
    refuse_no_text(content, where)
    return parse_json(content, where)


def refuse_no_text(content: bytes, where: str) -> None:
    """Reject an empty or binary file, e.g. from a killed program or a wrong name."""
    if not content.strip():
        raise ResultsError("the file is empty", where=where, next_step="measure again")
    if b"\0" in content:
        raise ResultsError("a binary file, not results", where=where)


def parse_json(text: str | bytes, where: str) -> Any:
    """Parse JSON, or say where it is invalid."""
    if len(text) > LARGEST_JSON_BYTES:
        raise ResultsError(f"JSON larger than {LARGEST_JSON_BYTES >> 20} MB: not a result file", where=where)
    try:
        data = json.loads(text)
    except RecursionError as error:
        raise _nested(where) from error
    except ValueError as error:
        raise ResultsError(
            f"invalid JSON: {error}", where=where, next_step="the file was truncated or edited: copy it again"
        ) from error
    _refuse_nested(data, where)
    return data


def _refuse_nested(data: Any, where: str) -> None:
    """Refuse levels that the parser accepts and a function that calls itself for each of them does not."""
    level = [data] if isinstance(data, dict | list) else []
    for _ in range(DEEPEST_JSON):
        inside = (each.values() if isinstance(each, dict) else each for each in level)
        level = [each for values in inside for each in values if isinstance(each, dict | list)]
        if not level:
            return
    raise _nested(where)


def _nested(where: str) -> ResultsError:
    return ResultsError("JSON is nested too deeply: not a result file", where=where)


def checked(kind: DocumentKind[AnyDocument], data: Any, where: str) -> AnyDocument:
    """Return parsed data as a document of this kind; a newer version is refused before its keys are checked."""
    try:
        document = _validated(kind, data, where)
        kind.check(document, where)
    except ResultsError as error:
        error.next_step = error.next_step or kind.if_broken
        raise
    return document


def _validated(kind: DocumentKind[AnyDocument], data: Any, where: str) -> AnyDocument:
    title = kind.title
    _refuse_no_object(data, title, where)
    version = data.get("schema_version")
    if isinstance(version, int) and version > kind.schema_version:
        raise ResultsError(
            f"written by a newer gputax (schema {version}, this one supports {kind.schema_version})",
            where=where,
            next_step="upgrade gputax",
        )
    try:
        return kind.document.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = printable(".".join(str(part) for part in first["loc"]))
        if "schema_version" not in data and "benchmarks" in data:
            raise ResultsError(
                f"not {title}: an older file, without schema version and samples",
                where=where,
                next_step="`gputax compare` reads it",
            ) from error
        raise ResultsError(f"not {title}: {place}: {printable(first['msg'])}", where=where) from error


def _refuse_no_object(data: Any, title: str, where: str) -> None:
    """Reject valid JSON without content with a clearer message than the schema's."""
    if isinstance(data, dict) and data:
        return
    kind = "an empty object" if isinstance(data, dict) else "a list" if isinstance(data, list) else "a single value"
    raise ResultsError(
        f"not {title}: the file contains {kind}{'' if isinstance(data, dict) else ', not an object'}",
        where=where,
        next_step="name a directory of results; `gputax run`, `gputax compare --out` and `gputax share` create them",
    )
