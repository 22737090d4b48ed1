"""The table of a victim and its neighbours on the terminal, and the list of walls that held or did not."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gputax.plan.techniques import TECHNIQUES
from gputax.results.documents.run import WarningRecord
from gputax.results.documents.sharing import IsolationRow, NeighbourRow, SharedFigure, SharingRecord
from gputax.results.importers.source import printable

WIDTH = 120
LONGEST_NOTE = 600
VERDICTS = {True: "pass", False: "FAIL", None: "not tried"}


def neighbour_lines(record: SharingRecord) -> list[str]:
    """Return the lines for people; every number stands under the label of its device."""
    lines: list[str] = []
    if record.neighbours:
        lines += [_title(record), *_rendered(_neighbours(record.neighbours))]
        lines += ["Slowdown: mean latency of the victim beside its neighbour over that alone, in pairs of slots."]
    lines += _notes(record)
    if record.isolation:
        lines += ["", f"Isolation{f', on {printable(record.device_label, LONGEST_NOTE)}' if record.device else ''}:"]
        lines += [line for row in record.isolation for line in _isolation(row)]
    for failure in record.failures:
        lines.append(printable(f"FAILED: {failure.cell}: {failure.what}", LONGEST_NOTE))
    return lines


def _title(record: SharingRecord) -> str:
    return printable(f"{record.neighbours[0].victim}, beside a neighbour, on {record.device_label}", LONGEST_NOTE)


def _neighbours(rows: Sequence[NeighbourRow]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("technique", "neighbour"):
        table.add_column(name)
    for name in ("alone, ms", "beside, ms", "slowdown", "95 % interval", "p99 slowdown", "pairs"):
        table.add_column(name, justify="right")
    above = ""
    for row in rows:
        name = technique_title(row.technique)
        table.add_row(*map(Text, ("" if name == above else name, row.aggressor, *_figures(row), str(row.pairs))))
        above = name
    return table


def technique_title(name: str) -> str:
    """Return the technique's name; one that is no technique of GPUs says so."""
    technique = TECHNIQUES.get(name)
    return f"{name} (stand-in)" if technique is not None and technique.stand_in else printable(name)


def _figures(row: NeighbourRow) -> tuple[str, ...]:
    if not row.valid:
        return "–", "–", "INVALID", "–", "–"
    tail = row.p99_slowdown_percent
    return (
        f"{row.alone_ms:.4g}",
        f"{row.beside_ms:.4g}",
        _percent(row.slowdown_percent.value),
        _interval(row.slowdown_percent),
        "–" if tail is None else f"{_percent(tail.value)} [{_interval(tail)}]",
    )


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{_signed(value)} %"


def _interval(figure: SharedFigure) -> str:
    if figure.ci95 is None:
        return "none"
    low, high = figure.ci95
    return f"{'−∞' if low is None else _signed(low)} to {'+∞' if high is None else _signed(high)}"


def _signed(value: float) -> str:
    return f"{value:+,.0f}" if abs(value) >= 1000 else f"{value:+.3g}"


def _notes(record: SharingRecord) -> list[str]:
    notes = [f"Claim: {record.claim}."] if record.claim else []
    by_code: dict[str, list[tuple[NeighbourRow, WarningRecord]]] = {}
    for row in record.neighbours:
        for warning in row.warnings:
            by_code.setdefault(warning.code, []).append((row, warning))
    for said in by_code.values():
        if len(said) > 1 and all(warning.value is not None for _, warning in said):
            # The same trouble in every row is one line: its worst case.
            row, warning = max(said, key=lambda each: abs(each[1].value or 0.0))
            notes.append(f"Warning: {warning.text} ({row.technique}, {row.aggressor}; the worst of {len(said)})")
        else:
            notes += [
                f"{'Warning' if row.valid else 'INVALID'}: {row.technique}, {row.aggressor}: {warning.text}"
                for row, warning in said
            ]
    notes += [f"Warning: {warning.text}" for warning in record.warnings]
    return [printable(note, LONGEST_NOTE) for note in dict.fromkeys(notes)]


def _isolation(row: IsolationRow) -> list[str]:
    head = f"  {VERDICTS[row.passed]:9}  {technique_title(row.technique)}: {row.check}"
    return [head, *_wrapped(printable(row.text, LONGEST_NOTE), indent=13)]


def _wrapped(text: str, indent: int) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=" " * indent, subsequent_indent=" " * indent)


def _rendered(table: Table) -> list[str]:
    stream = io.StringIO()
    Console(file=stream, highlight=False, markup=False, emoji=False, width=WIDTH, color_system=None).print(table)
    return [line.rstrip() for line in stream.getvalue().splitlines() if line.strip()]
