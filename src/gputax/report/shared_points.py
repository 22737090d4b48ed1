"""What sharing experiments measured, as points: a technique with N tenants, and why one has no figure; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gputax.plan.techniques import TECHNIQUES
from gputax.report import wording
from gputax.report.sources import SharingSource
from gputax.results.documents.sharing import IsolationRow, NeighbourRow, SharedCell, SharedRow, SharingRecord

# How `plan.sharing.ShareCell` names a cell: a failure has only this name.
CELL_NAME = re.compile(r"(.+)-t(\d+)-r\d+")
FOREIGN_MEMORY = "no foreign memory readable"
NOT_PROVEN = "nothing proves that the technique was active"


@dataclass(frozen=True)
class Point:
    """One technique with N tenants."""

    technique: str
    tenants: int
    row: SharedRow | None
    """None where no repeat counts."""
    reasons: tuple[str, ...] = ()
    """Why repeats of it do not count, or were not measured."""

    @property
    def label(self) -> str:
        """The technique for people."""
        return technique_title(self.technique)


@dataclass(frozen=True)
class Experiment:
    """One sharing document with the name that it has in this report."""

    title: str
    path: str
    record: SharingRecord
    points: tuple[Point, ...]

    @property
    def device(self) -> str:
        """The label that goes with every number of it."""
        return self.record.device_label

    @property
    def measured(self) -> tuple[tuple[Point, SharedRow], ...]:
        """The points that have figures."""
        return tuple((point, point.row) for point in self.points if point.row is not None)

    def titled(self, text: str) -> str:
        """Return the title of one of its tables or charts, with its device."""
        return wording.on_device(f"{self.title}: {text}", [self.device])


def technique_title(name: str) -> str:
    """Return a technique for people; a stand-in is never shown without that word."""
    if is_stand_in(name):
        return f"{name} (stand-in)"
    return TECHNIQUES[name].title if name in TECHNIQUES else name


def is_stand_in(name: str) -> bool:
    """Whether it runs the same experiment without a GPU instead of a GPU technique."""
    return name in TECHNIQUES and TECHNIQUES[name].stand_in


def fails_by_nature(row: IsolationRow) -> bool:
    """Whether a stand-in cannot keep this promise: its tenants are processes of one user, who may read them all."""
    return row.passed is False and is_stand_in(row.technique) and row.check == FOREIGN_MEMORY


def experiments_of(sources: Sequence[SharingSource]) -> tuple[Experiment, ...]:
    """Return every experiment, distinguished by its directory where workload, place and device are the same."""
    titles = [f"{source.record.workload} in {source.record.place}" for source in sources]
    keys = [(title, source.record.device_label) for title, source in zip(titles, sources, strict=True)]
    return tuple(
        Experiment(
            f"{title} ({_directory(source.path)})" if keys.count(key) > 1 else title,
            source.path,
            source.record,
            _points(source.record),
        )
        for title, key, source in zip(titles, keys, sources, strict=True)
    )


def techniques_of(experiments: Iterable[Experiment]) -> list[str]:
    """Return the labels of all techniques, in order, so that each keeps its colour."""
    return list(dict.fromkeys(point.label for each in experiments for point in each.points))


def cell_reasons(cell: SharedCell) -> tuple[str, ...]:
    """Return why a cell does not count."""
    if cell.valid:
        return ()
    reasons = cell.evidence.get("reasons")
    found = (
        [str(reason) for reason in reasons] if isinstance(reasons, list | tuple) else [str(reasons)] if reasons else []
    )
    found += [warning.text for warning in cell.warnings]
    return tuple(dict.fromkeys(found)) or (NOT_PROVEN,)


def neighbour_reason(row: NeighbourRow) -> str:
    """Return why a neighbour's row does not count; nothing for one that does."""
    texts = "; ".join(dict.fromkeys(warning.text for warning in row.warnings))
    return "" if row.valid else texts or NOT_PROVEN


def _directory(path: str) -> str:
    """Return the name of the directory that holds the document."""
    return (path.rsplit("/", 2)[:-1] or [path])[-1]


def _points(record: SharingRecord) -> tuple[Point, ...]:
    """Return what was measured or tried, by technique in the plan's order, then by tenants."""
    refused: dict[tuple[str, int], list[str]] = {}
    for cell in record.cells:
        refused.setdefault((cell.technique, cell.tenants), []).extend(cell_reasons(cell))
    for failure in record.failures:
        found = CELL_NAME.fullmatch(failure.cell)
        if found:
            refused.setdefault((found[1], int(found[2])), []).append(f"failed: {failure.what}")
    rows = {(row.technique, row.tenants): row for row in record.rows if _counts(row, record.cells)}
    planned = record.plan.get("techniques")
    order = list(planned) if isinstance(planned, list | tuple) else []
    order += [technique for technique, _ in (*rows, *refused)]
    return tuple(
        Point(technique, tenants, rows.get((technique, tenants)), _once(refused.get((technique, tenants), ())))
        for technique, tenants in sorted({*rows, *refused}, key=lambda key: (order.index(key[0]), key[1]))
    )


def _counts(row: SharedRow, cells: Sequence[SharedCell]) -> bool:
    """Whether a row is a figure: it has one, and not all cells under it are invalid."""
    own = [cell.valid for cell in cells if (cell.technique, cell.tenants) == (row.technique, row.tenants)]
    return wording.finite(row.mean_ms.value) is not None and (not own or any(own))


def _once(reasons: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(reasons))
