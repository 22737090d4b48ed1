"""The judged metrics of a report as plain rows: what the formats of CI systems are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gputax.errors import ResultsError
from gputax.report.model import Cell, Report

TABLE = "metrics"


@dataclass(frozen=True)
class JudgedRow:
    """One metric of one cell against its base, by the keys of the table of metrics."""

    cells: Mapping[str, Cell]

    def text(self, key: str) -> str:
        """Return an entry as people read it."""
        return self.cells[key].text

    def word(self, key: str) -> str:
        """Return an entry as programs read it; empty if there is none."""
        value = self.cells[key].value
        return "" if value is None else str(value)

    def number(self, key: str) -> float | None:
        """Return a number; None if there is none."""
        value = self.cells[key].value
        return float(value) if isinstance(value, int | float) else None

    @property
    def name(self) -> str:
        """The cell and its metric, e.g. `resnet50 single-stream: p50 latency`."""
        return f"{self.text('cell')}: {self.text('metric')}"

    @property
    def sides(self) -> str:
        """What is compared with what."""
        return f"{self.word('other')} over {self.word('base')}"

    @property
    def decides(self) -> bool:
        """Whether the exit code depends on it."""
        return self.cells["decides"].value is True

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """The 95 % interval of the overhead in percent."""
        return self.cells["overhead"].low, self.cells["overhead"].high


def judged_rows(report: Report) -> list[JudgedRow]:
    """Return every judged metric; a report that compares nothing has no verdict to export."""
    rows = [
        JudgedRow({column.key: cell for column, cell in zip(table.columns, row, strict=True)})
        for table in report.tables
        if table.name == TABLE
        for row in table.rows
    ]
    if not rows:
        raise ResultsError(
            "nothing is compared here, so a verdict to export is missing",
            where=", ".join(report.sources),
            next_step="name a duet or a comparison; gputax duet A B, or gputax compare A B --out comparison.json",
        )
    return rows
