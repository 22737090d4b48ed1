"""The table model and the report that is made of it: every exporter writes these, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

Value = str | int | float | bool | None
Tone = Literal["", "pass", "fail", "inconclusive", "not comparable", "muted"]
Spec = dict[str, Any]


@dataclass(frozen=True)
class Column:
    """A column of a table; the key names it for programs, the title for people."""

    key: str
    title: str
    unit: str = ""
    align: Literal["left", "right"] = "left"
    interval: bool = False
    """Its cells carry bounds, which CSV writes as KEY_low and KEY_high."""
    hidden: bool = False
    """For programs only: in CSV and JSON, and not in the tables that people read."""
    short: str = ""
    """Its heading where a console has little room, unit included."""
    spare: int = 0
    """A console that is too narrow drops the columns with the highest number first, and never those with 0."""

    @property
    def heading(self) -> str:
        """The title with its unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


@dataclass(frozen=True)
class Cell:
    """One entry: text for people, a value for programs."""

    text: str
    value: Value = None
    low: float | None = None
    high: float | None = None
    detail: str = ""
    """A second, quieter line."""
    tone: Tone = ""


def text_cell(text: str, *, detail: str = "", tone: Tone = "") -> Cell:
    """Return a cell whose text is its value."""
    return Cell(text, text, detail=detail, tone=tone)


@dataclass(frozen=True)
class Table:
    """Rows of typed cells under titled columns; the title names the device of its numbers."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    most_shown: int | None = None
    """At most this many rows for people; programs get all of them, and a note says so."""
    console: tuple[Table, ...] = ()
    """What a console shows in its place: the same cells in fewer columns, or in other units."""
    detail: bool = False
    """Not on the screen of the verb that measured it; in the report."""
    headless: bool = False
    """A list of names and texts, which needs no headings."""
    grouped: bool = False
    """On a console, rows that share their first cell are listed below it."""

    def __post_init__(self) -> None:
        for row in self.rows:
            assert len(row) == len(self.columns), f"table {self.name}: a row of {len(row)} cells"

    @property
    def shown_columns(self) -> tuple[Column, ...]:
        """The columns for people."""
        return tuple(column for column in self.columns if not column.hidden)

    @property
    def shown_rows(self) -> tuple[tuple[Cell, ...], ...]:
        """The cells for people."""
        return tuple(
            tuple(cell for cell, column in zip(row, self.columns, strict=True) if not column.hidden)
            for row in self.rows[: self.most_shown]
        )


@dataclass(frozen=True)
class Chart:
    """A Vega-Lite spec with what goes around the picture."""

    name: str
    """Unique in its report and safe in a file name."""
    title: str
    spec: Spec
    caption: str
    headline: bool = False
    """Belongs to the answer, and so into Markdown too."""
    table: Table | None = None
    """The same numbers to read."""


@dataclass(frozen=True)
class Section:
    """A part of the report below the answer."""

    name: str
    title: str
    intro: str = ""
    """A paragraph per line."""
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    """What goes with all of its tables."""
    folded: bool = False
    """Shown on demand in the page: true, but not what most readers came for."""
    small: bool = False
    """Its charts are many and small."""


def notes_once(tables: tuple[Table, ...]) -> tuple[tuple[Table, ...], tuple[str, ...]]:
    """Return the tables without the notes that all of them have, and these notes."""
    if len(tables) < 2:
        return tables, ()
    shared = tuple(note for note in tables[0].notes if all(note in table.notes for table in tables))
    return tuple(
        replace(table, notes=tuple(note for note in table.notes if note not in shared)) for table in tables
    ), shared


@dataclass(frozen=True)
class Fact:
    """One line of the answer, for layers or runs, with the tone of its verdict."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True)
class Brief:
    """The answer of one duet on a console: a table, and one line each for what it rests on."""

    table: Table
    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class OverviewRow:
    """A row of the first chart: a layer against its base, a cell, or tenants that share a device."""

    name: str
    value: float
    low: float | None
    high: float | None
    text: str
    """The value with its interval and its verdict."""
    tip: str
    """The row in one sentence."""
    mark: float | None = None
    """The budget, where there is one, in the unit of the value."""
    tone: Tone = ""
    beside: str = ""
    worst: str = ""
    """The metric of the layer that is nearest to its budget or furthest over it."""
    worst_tone: Tone = ""
    own: str = ""
    """Its metric and device, where the rows do not share one."""


@dataclass(frozen=True)
class KeyNumber:
    """One of the three numbers below the first chart."""

    text: str
    label: str
    device: str
    """Shown with it where the report has several."""


@dataclass(frozen=True)
class Overview:
    """The first screen: a title of at most twelve words, one chart and three numbers."""

    title: Fact
    chart: Chart | None = None
    numbers: tuple[KeyNumber, ...] = ()


@dataclass(frozen=True)
class Report:
    """All that is shown: the answer first, then what it rests on."""

    overview: Overview
    question: str
    answer: Fact
    facts: tuple[Fact, ...]
    devices: tuple[str, ...]
    answer_table: Table | None
    answer_charts: tuple[Chart, ...]
    sections: tuple[Section, ...]
    warnings: tuple[Fact, ...]
    """Every warning, with the places that share it."""
    commands: tuple[str, ...]
    """How to measure it again, and how to write this report again."""
    sources: tuple[str, ...]
    measured: str
    """When, as the results say; a report that is built again from the same files is the same."""
    remarks: tuple[Fact, ...] = ()
    """The warnings as a terminal shows them: one short line per kind, with its worst value."""
    brief: Brief | None = None
    """What a console shows in place of the answer, its table and its facts."""
    more_answers: tuple[Fact, ...] = ()
    """To the other questions that the same results answer, each in one sentence."""

    @property
    def title(self) -> str:
        """The question with the devices it was answered on."""
        return f"{self.question} On {'; '.join(self.devices)}" if self.devices else self.question

    @property
    def tables(self) -> tuple[Table, ...]:
        """Every table, the answer's first."""
        first = () if self.answer_table is None else (self.answer_table,)
        behind_charts = tuple(chart.table for chart in self.charts if chart.table is not None)
        return (*first, *behind_charts, *(table for section in self.sections for table in section.tables))

    @property
    def charts(self) -> tuple[Chart, ...]:
        """Every chart, that of the first screen first."""
        first = () if self.overview.chart is None else (self.overview.chart,)
        return (
            *first,
            *self.answer_charts,
            *(chart for section in self.sections for chart in section.charts),
        )
