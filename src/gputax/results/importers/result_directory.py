"""Our own result directory, or its `benchmark_results.json` by name, as a source."""

from __future__ import annotations

from gputax.errors import ResultsError
from gputax.results.documents.run import RECORD_NAME
from gputax.results.importers.place import Place
from gputax.results.importers.record_source import source_of_record
from gputax.results.importers.source import Source
from gputax.results.reading import RUN, checked


def record_place(place: Place) -> Place | None:
    """Return the JSON document at this place or in it; None if there is none."""
    if not place.is_directory:
        return place if isinstance(place.data, dict) else None
    path = place.path / RECORD_NAME
    return Place(path) if path.is_file() else None


def recognises(place: Place) -> bool:
    """Whether there is a document with a schema version: the older files have none."""
    document = record_place(place)
    if document is None:
        return False
    if not isinstance(document.data, dict):
        raise ResultsError("not a run record: not a JSON object", where=document.name, next_step="measure again")
    return "schema_version" in document.data


def read(place: Place) -> Source:
    """Read record and samples."""
    document = record_place(place)
    assert document is not None
    if {"kind", "sides"} <= set(document.data):
        raise ResultsError(
            "this is a comparison, not a result",
            where=document.name,
            next_step="gputax report shows it; compare needs measured results",
        )
    record = checked(RUN, document.data, document.name)
    return source_of_record(record, place.name, "gputax", document.path.parent)
