"""Numbers and texts at known keys of a foreign JSON document, where every level may be missing or of another type."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from gputax.errors import ResultsError
from gputax.results.importers.source import Place
from gputax.text import printable


def at(data: Any, *keys: str) -> Any:
    """Follow keys down; None where a level is missing or not an object."""
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def number(data: Any, *keys: str) -> float | None:
    """Return the number at the keys, which may be NaN; None if there is none."""
    found = at(data, *keys)
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def finite(data: Any, *keys: str) -> float | None:
    """Return the number at the keys; None if there is none or it is not finite."""
    found = number(data, *keys)
    return found if found is not None and math.isfinite(found) else None


def text(data: Any, *keys: str) -> str:
    """Return the text at the keys; "" if there is none."""
    found = at(data, *keys)
    return printable(found) if isinstance(found, str) else ""


def numbers(data: Any, *keys: str) -> tuple[float, ...]:
    """Return the list of numbers at the keys; a value that is not one becomes NaN."""
    found = at(data, *keys)
    if not isinstance(found, list):
        return ()
    return tuple(
        float(each) if isinstance(each, int | float) and not isinstance(each, bool) else math.nan for each in found
    )


def json_lines(place: Place) -> Iterator[Any]:
    """Yield the objects of a file with one JSON document per line; the error names the first line that is none."""
    for count, line in enumerate(place.text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            yield json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ResultsError(
                f"line {count} is not valid JSON",
                where=place.name,
                next_step="the file was cut or edited: copy it again, or delete that line to read the others",
            ) from error


def first_line(place: Place) -> Any:
    """Return the JSON document in the first line of a file; None if it is none."""
    try:
        return json.loads(place.text.lstrip().partition("\n")[0])
    except (ValueError, RecursionError):
        return None


def document(place: Place) -> Any:
    """Return the file's JSON document; of a file with one per line, the first."""
    first = first_line(place)
    return place.data if first is None else first
