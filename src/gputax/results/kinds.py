"""The kinds of documents that a result directory can hold: type, file name, version, and the words for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from gputax.results.documents.base import Document
from gputax.results.documents.comparison import COMPARISON_NAME, Comparison
from gputax.results.documents.run import RECORD_NAME, RunRecord
from gputax.results.documents.sharing import SHARING_NAME, SharingRecord
from gputax.results.sharing_bounds import refuse_nonsense

AnyDocument = TypeVar("AnyDocument", bound=Document)
Resumable = TypeVar("Resumable", RunRecord, SharingRecord)
"""The record of an experiment that grows cell by cell, and that the same command resumes."""


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
    """What wrote it, as it is named where a directory already holds one: `this directory holds a run`."""
    missing: str
    """What is said of a directory without one."""
    command: str
    """The command that writes one."""
    if_broken: str = ""
    """The next step where the document breaks a rule that has none of its own."""
    check: Callable[[AnyDocument, str], None] = _anything
    """Raises where a figure cannot be; the second argument is where the document lies."""


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
SHARING = DocumentKind(
    SharingRecord,
    SHARING_NAME,
    schema_version=1,
    title="a sharing experiment",
    experiment="sharing experiment",
    missing="no sharing experiment here",
    command="gputax share --out DIR",
    if_broken="the file was edited, or is another program's: `gputax share` writes ours",
    check=refuse_nonsense,
)
