"""Detect the format of a path by its content, and read it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gputax.errors import ResultsError
from gputax.results.documents.comparison import COMPARISON_NAME
from gputax.results.documents.run import RECORD_NAME
from gputax.results.importers import loadgen_directory, older_json, pod_log, result_directory, text_results
from gputax.results.importers.origin import with_origin
from gputax.results.importers.place import Place
from gputax.results.importers.source import Format, Source
from gputax.text import printable

Recognises = Callable[[Place], bool]
Read = Callable[[Place], Source]
# In this order: a log with our block may also contain LoadGen's summary, a log may start with a line of JSON, and every
# file can be read as text.
FORMATS: dict[Format, tuple[Recognises, Read]] = {
    "pod-log": (pod_log.recognises, pod_log.read),
    "loadgen": (loadgen_directory.recognises, loadgen_directory.read),
    "gputax": (result_directory.recognises, result_directory.read),
    "older-json": (older_json.recognises, older_json.read),
    "text": (lambda place: not place.is_directory and place.data is None, text_results.read),
}


def read_source(path: Path, environment: str = "") -> Source:
    """Read the path in any known format, or say why it is not a result; the environment is what the caller knows."""
    place = Place(path)
    found = format_of(place)
    if found is None:
        raise ResultsError("no results in a known format", where=place.name, next_step=_advice(place))
    _, read = FORMATS[found]
    return with_origin(read(place), place, environment)


def format_of(place: Place) -> Format | None:
    """Return the first format that recognises the place; None if none does."""
    return next((name for name, (recognises, _) in FORMATS.items() if recognises(place)), None)


def _advice(place: Place) -> str:
    if not place.is_directory:
        return "this JSON has neither a schema version nor a list of benchmarks"
    if (place.path / COMPARISON_NAME).is_file():
        return "this is a comparison: `gputax report` shows it; compare needs measured results"
    names = (RECORD_NAME, loadgen_directory.DETAIL_NAME, loadgen_directory.SUMMARY_NAME)
    for name in names:
        deeper = sorted(place.path.glob(f"*/{name}"))[:3] or sorted(place.path.glob(f"*/*/{name}"))[:3]
        if deeper:
            return "name one of the directories below: " + ", ".join(printable(str(found.parent)) for found in deeper)
    return f"a result directory contains {RECORD_NAME}, or LoadGen's {' or '.join(names[1:])}"
