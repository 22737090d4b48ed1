"""Write tables and reports for a terminal: never wider than it is, no word or number cut, ASCII where it must be."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from gputax.report.model import Cell, Column, Fact, Report, Table, Tone
from gputax.text import DASH, shows_unicode, to_ascii

# In a pipe or a file, where COLUMNS says nothing else: what a terminal has by default.
WIDTH_WITHOUT_TERMINAL = 80
NARROWEST = 20
GAP = "  "
# What fits under a number; anything longer is a sentence and goes below the table.
SHORT_DETAIL = 10
# A name may be wrapped to half of its length; a sentence is not squeezed into less than this.
NARROWEST_NAME = 24
# A number stays with its unit.
BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|(?:ms|µs|us|s|min|h|KB|MB|GB|MiB|GB/s|pairs)\b))")
STYLES: dict[Tone, str] = {
    "": "",
    "pass": "green",
    "fail": "red",
    "inconclusive": "yellow",
    "not comparable": "magenta",
    "muted": "dim",
}
Extent = Literal["answer", "screen", "all"]


def width_of(stream: TextIO) -> int:
    """Return how many columns the stream has: COLUMNS, else those of its terminal, else 80."""
    given = os.environ.get("COLUMNS", "")
    if given.isascii() and given.isdigit() and int(given):
        return max(NARROWEST, int(given))
    try:
        columns = os.get_terminal_size(stream.fileno()).columns if stream.isatty() else 0
    except (OSError, ValueError):
        columns = 0
    return max(NARROWEST, columns or WIDTH_WITHOUT_TERMINAL)


class Screen:
    """A stream with a width: everything that a verb shows as its result is written through one."""

    def __init__(self, stream: TextIO, width: int | None = None) -> None:
        self.width = width or width_of(stream)
        self._unicode = shows_unicode(stream)
        self._noted: set[str] = set()
        self._console = Console(file=stream, highlight=False, markup=False, emoji=False, width=self.width)

    def say(self, text: str, style: str = "", *, hang: int = 0) -> None:
        """Write a paragraph, wrapped at its spaces; further lines are indented by `hang`, or below an indentation."""
        indent = len(text) - len(text.lstrip(" "))
        hang = hang or (2 if indent else 0)
        lines = wrapped(self.shown(text.lstrip(" ")), self.width - indent - hang)
        for number, line in enumerate(lines or [""]):
            self.line(Text(" " * (indent + hang if number else indent) + line, style=style))

    def line(self, line: Text | str) -> None:
        """Write one line as it is, however long: a command or a path that somebody copies."""
        shown = Text(self.shown(line)) if isinstance(line, str) else line
        shown.rstrip()
        self._console.print(shown, soft_wrap=True)

    def shown(self, text: str) -> str:
        """Return the text as the stream can write it."""
        return text if self._unicode else to_ascii(text)

    def table(self, table: Table) -> None:
        """Write one table with its notes: whole, else in fewer columns, else row by row."""
        for each in table.console or (table,):
            self._table(each)

    def _table(self, table: Table) -> None:
        if table.title:
            self.say(table.title, "bold")
        grid = Grid(table, self)
        layout = next((each for each in grid.layouts() if sum(each.needs) + each.gaps <= self.width), None)
        if layout is None:
            self._stacked(table)
        else:
            for line in grid.lines(layout):
                self.line(line)
        for reason, names in reasons_of(table).items():
            self.say(f"{'; '.join(names)}: {reason}", "dim")
        self.notes(table.notes)

    def notes(self, notes: Iterable[str]) -> None:
        """Write what is to be read with tables, each thing once."""
        for note in notes:
            if note not in self._noted:
                self.say(note, "dim")
            self._noted.add(note)

    def _stacked(self, table: Table) -> None:
        for row in table.shown_rows:
            self.say(row[0].text, "bold")
            for cell, column in zip(row[1:], table.shown_columns[1:], strict=True):
                detail = f"; {cell.detail}" if 0 < len(cell.detail) <= SHORT_DETAIL else ""
                name = "" if table.headless else f"{column.short or column.heading}: "
                if cell.text:
                    text = ", ".join(cell.text.split("\n"))
                    self.say(f"  {name}{text}{detail}", STYLES[cell.tone])


@dataclass(frozen=True)
class Layout:
    """Some columns of a table, and the room that each must have and would like."""

    columns: tuple[int, ...]
    headings: tuple[str, ...]
    needs: tuple[int, ...]
    wants: tuple[int, ...]
    broken: bool
    indented: bool

    @property
    def gaps(self) -> int:
        """The room between the columns."""
        return len(GAP) * (len(self.columns) - (0 if self.indented else 1))

    def widths(self, width: int) -> list[int]:
        """Return what each column gets: names give way, the longest first."""
        widths = list(self.wants)
        while sum(widths) + self.gaps > width:
            over = [i for i, need in enumerate(self.needs) if widths[i] > need]
            widths[max(over, key=lambda i: widths[i])] -= 1
        return widths


class Grid:
    """The cells of a table as a screen can show them."""

    def __init__(self, table: Table, screen: Screen) -> None:
        self._table = table
        self._screen = screen
        self._columns = table.shown_columns
        self._rows = table.shown_rows

    def layouts(self) -> Iterator[Layout]:
        """Yield ways to show it, the best first: all on one line, shorter headings, fewer columns, broken numbers."""
        everything = tuple(range(1 if self._table.grouped else 0, len(self._columns)))
        full = self._layout(everything, [column.heading for column in self._columns], broken=False)
        if sum(full.wants) + full.gaps <= self._screen.width:
            yield full
        short = [column.short or column.heading for column in self._columns]
        yield self._layout(everything, short, broken=False)
        kept = everything
        for spare in sorted({column.spare for column in self._columns} - {0}, reverse=True):
            kept = tuple(i for i in kept if self._columns[i].spare < spare)
            yield self._layout(kept, short, broken=False)
        yield self._layout(kept, short, broken=True)
        yield self._layout(kept, short, broken=True, squeezed=True)

    def _layout(
        self, columns: tuple[int, ...], headings: Sequence[str], *, broken: bool, squeezed: bool = False
    ) -> Layout:
        shown = tuple("" if self._table.headless else self._screen.shown(headings[i]) for i in columns)
        rooms = [self._room(i, heading, broken, squeezed) for i, heading in zip(columns, shown, strict=True)]
        needs, wants = tuple(need for need, _ in rooms), tuple(want for _, want in rooms)
        return Layout(columns, shown, needs, wants, broken, self._table.grouped)

    def _room(self, i: int, heading: str, broken: bool, squeezed: bool) -> tuple[int, int]:
        """Return the least room of a column, and the room in which nothing of it is wrapped."""
        lines = [line for row in self._rows for line in self._entry(row[i], self._columns[i], broken)]
        words = max((cell_len(word) for text in (heading, *lines) for word in split(text)), default=0)
        longest = max((cell_len(line) for line in lines), default=0)
        want = max(longest, cell_len(heading))
        if solid(self._columns[i]):
            return max(words, longest), want
        return max(words, min(NARROWEST_NAME, math.ceil(want / 2) if squeezed else longest)), want

    def _entry(self, cell: Cell, column: Column, broken: bool) -> list[str]:
        """Return the cell's lines; broken, an interval is below its number."""
        text = self._screen.shown(cell.text)
        if broken and column.align == "right":
            text = text.replace(" (", "\n(", 1)
        detail = [self._screen.shown(cell.detail)] if 0 < len(cell.detail) <= SHORT_DETAIL else []
        return [*text.split("\n"), *detail]

    def lines(self, layout: Layout) -> Iterator[Text]:
        """Yield the heading, a rule and the rows."""
        widths = layout.widths(self._screen.width)
        if not self._table.headless:
            heads = [wrapped(text, width) for text, width in zip(layout.headings, widths, strict=True)]
            height = max(map(len, heads))
            heads = [[""] * (height - len(head)) + head for head in heads]
            yield from self._row(layout, widths, heads, ["bold"] * len(heads))
            yield Text(self._screen.shown("─") * (sum(widths) + layout.gaps), style="dim")
        above = ""
        for row in self._rows:
            cells = [row[i] for i in layout.columns]
            if self._table.grouped and row[0].text != above:
                yield from (Text(line) for line in wrapped(self._screen.shown(row[0].text), self._screen.width))
            entries = [
                self._wrapped(cell, i, width, layout.broken)
                for cell, i, width in zip(cells, layout.columns, widths, strict=True)
            ]
            if not self._table.grouped and not solid(self._columns[0]) and cells[0].text == above and len(cells) > 1:
                entries[0] = []
            above = row[0].text
            yield from self._row(layout, widths, entries, [STYLES[cell.tone] for cell in cells])

    def _wrapped(self, cell: Cell, i: int, width: int, broken: bool) -> list[str]:
        lines = self._entry(cell, self._columns[i], broken)
        return lines if solid(self._columns[i]) else [part for line in lines for part in wrapped(line, width)]

    def _row(
        self, layout: Layout, widths: Sequence[int], entries: Sequence[Sequence[str]], styles: Sequence[str]
    ) -> Iterator[Text]:
        for n in range(max(map(len, entries), default=0)):
            line = Text()
            for k, i in enumerate(layout.columns):
                text = entries[k][n] if n < len(entries[k]) else ""
                space = " " * (widths[k] - cell_len(text))
                line.append(GAP if k or self._table.grouped else "")
                line.append(space + text if self._columns[i].align == "right" else text + space, style=styles[k])
            yield line


def reasons_of(table: Table) -> dict[str, list[str]]:
    """Return what is said below the table, each reason once with the rows that share it."""
    found: dict[str, list[str]] = {}
    for row in table.shown_rows:
        reasons = [cell.detail for cell in row if len(cell.detail) > SHORT_DETAIL]
        if reasons:
            names = [
                cell.text
                for cell, column in zip(row[:2], table.shown_columns, strict=False)
                if cell.text != DASH and (not solid(column) or column.key == "tenants")
            ]
            found.setdefault("; ".join(reasons), []).append(", ".join(names))
    return found


def solid(column: Column) -> bool:
    """Whether the column is never wrapped: a number that lost its end is a wrong number."""
    return column.align == "right" or column.key == "verdict"


def split(text: str) -> list[str]:
    """Return the words, a number together with its unit."""
    return [word.replace("\u00a0", " ") for word in BEFORE_UNIT.sub("\u00a0", text).split(" ") if word]


def wrapped(text: str, width: int) -> list[str]:
    """Return lines of at most this width; a longer word, such as a path, has a line of its own and stays whole."""
    lines: list[str] = []
    for word in split(text):
        if lines and cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def write_console(report: Report, stream: TextIO, extent: Extent = "all", width: int | None = None) -> None:
    """Write the report: its answer with the warnings, what fits a screen, or every table that is not folded.

    NO_COLOR and pipes get plain text.
    """
    screen = Screen(stream, width)
    tables: list[Table] = []
    if report.brief is not None:
        screen.table(report.brief.table)
    else:
        if report.answer_table is None:
            screen.say(report.title, "bold")
        for answer in (report.answer, *report.more_answers):
            _say(screen, answer)
        tables += [] if report.answer_table is None else [report.answer_table]
    notes: list[str] = []
    if extent != "answer":
        for section in report.sections:
            if not section.folded and not (report.brief is not None and section.name == "metrics"):
                own = [*(chart.table for chart in section.charts if chart.table is not None), *section.tables]
                tables += own
                # A table with a form for the console has its own, shorter notes.
                notes += section.notes if extent == "all" and not all(table.console for table in own) else ()
    for table in tables:
        if extent == "all" or not table.detail:
            screen.say("")
            screen.table(table)
    screen.notes(notes)
    if report.brief is None or tables:
        screen.say("")
    for fact in report.facts if report.brief is None else report.brief.facts:
        _say(screen, fact)
    for warning in report.warnings if extent == "all" else report.remarks:
        _say(screen, Fact(f"Warning: {warning.text}", warning.tone))


def write_table(table: Table, stream: TextIO, width: int | None = None) -> None:
    """Write one table."""
    Screen(stream, width).table(table)


def _say(screen: Screen, fact: Fact) -> None:
    screen.say(fact.text, STYLES[fact.tone])
