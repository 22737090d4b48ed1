"""Write the report for a terminal: the answer, the tables, and every warning."""

from __future__ import annotations

from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from gputax.report.model import Cell, Column, Fact, Report, Table, Tone

WIDTH_WITHOUT_TERMINAL = 120
# What fits under a number; anything longer is a sentence and stands below the table.
SHORT_DETAIL = 10
LONG_NUMBER = 12
# Padding and the gap that the box leaves between columns.
GAP = 3
EDGES = 1
STYLES: dict[Tone, str] = {
    "": "",
    "pass": "green",
    "fail": "red",
    "inconclusive": "yellow",
    "not comparable": "magenta",
    "muted": "dim",
}


def write_console(report: Report, stream: TextIO, *, answer_only: bool = False) -> None:
    """Write the report, or its answer with the warnings; NO_COLOR and pipes get plain text."""
    width = None if stream.isatty() else WIDTH_WITHOUT_TERMINAL
    console = Console(file=stream, highlight=False, markup=False, emoji=False, width=width)
    console.print(Text(report.title, style="bold"))
    for answer in (report.answer, *report.more_answers):
        console.print(_line(answer))
    if report.answer_table is not None:
        write_table(report.answer_table, console)
    for fact in report.facts:
        console.print(_line(fact))
    if not answer_only:
        for section in report.sections:
            if not section.folded:
                behind_charts = [chart.table for chart in section.charts if chart.table is not None]
                for table in (*behind_charts, *section.tables):
                    write_table(table, console)
                for note in section.notes:
                    console.print(Text(note, style="dim"))
    for warning in report.remarks:
        console.print(Text("Warning: ") + _line(warning))


def write_table(table: Table, console: Console) -> None:
    """Write one table with its notes; where it does not fit, with broken numbers, and else row by row."""
    whole, broken = (_grid(table, broken=each) for each in (False, True))
    if _width(table, whole, names_whole=True) <= console.width:
        console.print(_table(table, whole, broken=False))
    elif _width(table, broken, names_whole=False) <= console.width:
        console.print(_table(table, broken, broken=True))
    else:
        _write_rows(table, console)
    for row in table.shown_rows:
        reasons = [cell.detail for cell in row if len(cell.detail) > SHORT_DETAIL]
        if reasons:
            console.print(Text(f"{row[0].text}, {row[1].text}: {'; '.join(reasons)}", style="dim"))
    for note in table.notes:
        console.print(Text(note, style="dim"))


def _grid(table: Table, *, broken: bool) -> list[list[str]]:
    return [
        [_entry(cell, column, broken) for cell, column in zip(row, table.shown_columns, strict=True)]
        for row in table.shown_rows
    ]


def _entry(cell: Cell, column: Column, broken: bool) -> str:
    """Return the cell with a short detail below it; broken, an interval and a unit have lines of their own."""
    text = cell.text
    if broken and column.align == "right" and len(text) > LONG_NUMBER:
        text = text.replace(" (", "\n(", 1) if " (" in text else text.replace(" ", "\n", 1)
    return f"{text}\n{cell.detail}" if 0 < len(cell.detail) <= SHORT_DETAIL else text


def _width(table: Table, grid: list[list[str]], *, names_whole: bool) -> int:
    """Return the room that the table needs, with names on one line or broken at their spaces."""
    columns = range(len(table.shown_columns))
    return EDGES + sum(_column_width(table, grid, i, names_whole=names_whole) + GAP for i in columns)


def _column_width(table: Table, grid: list[list[str]], i: int, *, names_whole: bool) -> int:
    column = table.shown_columns[i]
    texts = [_heading(column, broken=not names_whole), *(row[i] for row in grid)]
    parts = [part for text in texts for part in (text.split("\n") if names_whole or _solid(column) else text.split())]
    return max(len(part) for part in parts or [""])


def _solid(column: Column) -> bool:
    """Whether the column is never broken: a number that lost its end is a wrong number."""
    return column.align == "right" or column.key == "verdict"


def _heading(column: Column, *, broken: bool) -> str:
    return column.heading.replace(" (", "\n(") if broken else column.heading


def _table(table: Table, grid: list[list[str]], *, broken: bool) -> RichTable:
    shown = RichTable(title=Text(table.title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for i, column in enumerate(table.shown_columns):
        shown.add_column(
            Text(_heading(column, broken=broken)),
            justify=column.align,
            no_wrap=_solid(column),
            overflow="fold",
            # Rich would take from a name, in the middle of a word, what another column does not need.
            min_width=_column_width(table, grid, i, names_whole=False),
        )
    for row, texts in zip(table.shown_rows, grid, strict=True):
        shown.add_row(*(Text(text, style=STYLES[cell.tone]) for cell, text in zip(row, texts, strict=True)))
    return shown


def _write_rows(table: Table, console: Console) -> None:
    console.print(Text(table.title, style="bold"))
    for row in table.shown_rows:
        console.print(Text(f"  {row[0].text}", style="bold"))
        for cell, column in zip(row[1:], table.shown_columns[1:], strict=True):
            detail = f"; {cell.detail}" if 0 < len(cell.detail) <= SHORT_DETAIL else ""
            console.print(Text(f"    {column.heading}: {cell.text}{detail}", style=STYLES[cell.tone]))


def _line(fact: Fact) -> Text:
    return Text(fact.text, style=STYLES[fact.tone])
