"""The kinds of documents that a result directory can contain: type, file name, version and display texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from gputax.results.documents.base import Document
from gputax.results.documents.comparison import COMPARISON_NAME, RESOLUTION_NAME, Comparison, Resolution
from gputax.results.documents.run import RECORD_NAME, RunRecord
from gputax.results.documents.sharing import SHARING_NAME, SharingRecord, refuse_nonsense

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
