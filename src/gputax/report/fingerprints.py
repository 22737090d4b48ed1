"""What was equal and what was not: fingerprints and evidence of all sides beside each other; pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gputax.report.model import Cell, Column, Table, text_cell
from gputax.report.sources import Sources
from gputax.report.wording import DASH, finite, on_device

# Of one process: they say nothing of the place.
VOLATILE = ("pid", "cgroup", "prepare_s", "notices", "kept_captures", "answers")
LONGEST_VALUE = 160


def flattened(data: Any, path: str = "") -> dict[str, str]:
    """Return nested data as `a.b.c` -> text, in its own order."""
    if isinstance(data, dict) and data:
        flat: dict[str, str] = {}
        for key, value in data.items():
            flat |= flattened(value, f"{path}.{key}" if path else str(key))
        return flat
    return {path: _text(data)}


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        text = ", ".join(_text(each) for each in value)
    elif isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, float):
        text = f"{value:g}" if finite(value) is not None else DASH
    elif value is None or value in ({}, ""):
        text = DASH
    else:
        text = str(value)
    return text if len(text) <= LONGEST_VALUE else text[:LONGEST_VALUE] + "…"


def fingerprint_table(sources: Sources) -> Table | None:
    """Return one row per fact and one column per side; what differs comes first and is marked."""
    sides = _sides(sources, "fingerprint")
    facts = _facts(sides)
    differing = [fact for fact in facts if len({side.facts.get(fact, DASH) for side in sides}) > 1]
    ordered = [*differing, *(fact for fact in facts if fact not in differing)]
    note = f"{len(differing)} of {len(facts)} facts differ; they come first and are marked." if len(sides) > 1 else ""
    return _beside_each_other("fingerprints", "Fingerprints", sides, ordered, set(differing), note)


def evidence_table(sources: Sources) -> Table | None:
    """Return what proves that each layer was there while it was measured."""
    sides = _sides(sources, "evidence")
    return _beside_each_other("evidence", "Evidence that each layer was active", sides, _facts(sides), set(), "")


@dataclass(frozen=True)
class _Side:
    label: str
    device: str
    facts: dict[str, str]

    def agrees(self, other: _Side) -> bool:
        """Whether both may be one: the same place, and no contradicting fact."""
        same = (self.label, self.device) == (other.label, other.device)
        return same and all(self.facts.get(fact, value) == value for fact, value in other.facts.items())


def _sides(sources: Sources, part: str) -> list[_Side]:
    """Return every run and every side of a comparison; those that agree become one column."""
    found = [
        _Side(run.record.environment, run.record.device_label, _flat(getattr(run.record, part))) for run in sources.runs
    ]
    for source in sources.comparisons:
        found += [_Side(side.label, side.device_label, _flat(getattr(side, part))) for side in source.comparison.sides]
    if part == "fingerprint":  # what proves a technique has a table of its own, by technique
        found += [
            _Side(f"{source.record.place}, shared", source.record.device_label, _flat(source.record.fingerprint))
            for source in sources.sharing
        ]
    sides: list[_Side] = []
    for side in found:
        place = next((i for i, known in enumerate(sides) if known.agrees(side)), None)
        if place is None:
            sides.append(side)
        else:
            sides[place] = replace(side, facts={**side.facts, **sides[place].facts})
    return sides


def _flat(data: dict[str, Any]) -> dict[str, str]:
    return flattened({key: value for key, value in data.items() if key not in VOLATILE}) if data else {}


def _facts(sides: Sequence[_Side]) -> list[str]:
    return list(dict.fromkeys(fact for side in sides for fact in side.facts))


def _beside_each_other(
    name: str, title: str, sides: Sequence[_Side], facts: Sequence[str], marked: Collection[str], note: str
) -> Table | None:
    if not facts:
        return None
    columns = (Column("fact", "fact"), *(Column(f"side_{i + 1}", side.label) for i, side in enumerate(sides)))
    rows = tuple(
        (_name(fact, fact in marked), *(text_cell(side.facts.get(fact, DASH)) for side in sides)) for fact in facts
    )
    return Table(name, on_device(title, [side.device for side in sides]), columns, rows, (note,) if note else ())


def _name(fact: str, marked: bool) -> Cell:
    return text_cell(f"{fact} ≠", tone="inconclusive") if marked else text_cell(fact)
