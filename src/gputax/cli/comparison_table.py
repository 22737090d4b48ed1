"""The table of a comparison on the terminal, with what its numbers may be called and every reason and warning."""

from __future__ import annotations

from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gputax.plan.metrics import METRICS
from gputax.report.wording import OVERHEAD_NOTE, PAIRED_NOTE, cell_title, said
from gputax.results.documents.comparison import ComparedMetric, Comparison
from gputax.results.documents.run import WarningRecord
from gputax.results.importers.source import printable

WIDTH_WITHOUT_TERMINAL = 120
COLOURS: dict[str, str] = {"pass": "green", "fail": "red", "inconclusive": "yellow", "not comparable": "magenta"}
LONGEST_NOTE = 600


def comparison_table(comparison: Comparison, stream: TextIO) -> None:
    """Write the comparison for people: one table for each side that is held against the base."""
    width = None if stream.isatty() else WIDTH_WITHOUT_TERMINAL
    console = Console(file=stream, highlight=False, markup=False, emoji=False, width=width)
    console.print(Text(printable(comparison.question, LONGEST_NOTE), style="bold"))
    for base, other in dict.fromkeys((row.base, row.other) for row in comparison.metrics):
        console.print(_table(comparison, base, other))
    for line in notes(comparison):
        console.print(Text(printable(line, LONGEST_NOTE)))


def _table(comparison: Comparison, base: str, other: str) -> Table:
    rows = [row for row in comparison.metrics if (row.base, row.other) == (base, other)]
    devices = dict.fromkeys(side.device_label for side in comparison.sides if side.label in (base, other))
    kind = "in pairs" if all(row.paired for row in rows) else "unpaired (weaker)"
    title = f"{other} against {base}, {kind}, on {'; '.join(devices)}"
    table = Table(
        title=Text(printable(title, LONGEST_NOTE)), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for name in ("cell", "metric"):
        table.add_column(name, overflow="fold")  # cut off, two operations of micro would look the same
    for name in (base, other, "overhead", "95 % interval", "budget"):
        table.add_column(Text(printable(name)), justify="right")
    table.add_column("verdict", no_wrap=True)
    above = ""
    for row in rows:
        cell, *texts, verdict = _cells(row)
        table.add_row(Text("" if cell == above else cell), *map(Text, texts), Text(verdict, style=COLOURS[row.verdict]))
        above = cell
    return table


def notes(comparison: Comparison) -> list[str]:
    """Return what must be read with the table, each thing said once."""
    lines = [OVERHEAD_NOTE]
    if any(row.paired and row.overhead_percent is not None for row in comparison.metrics):
        lines.append(PAIRED_NOTE)
    by_reason: dict[tuple[str, str, str, str], list[str]] = {}
    for row in comparison.metrics:
        if row.verdict != "pass":
            by_reason.setdefault((said(row), _cell(row), row.other, row.reason), []).append(_title(row))
    for (verdict, cell, other, reason), titles in by_reason.items():
        # What forbids a comparison forbids it for all metrics of the cell.
        what = cell if verdict == "not comparable" else f"{cell} {', '.join(titles)}"
        lines.append(f"{verdict}: {what}, {other}: {reason}")
    lines += [f"Claim: {row.claim}." for row in comparison.metrics if row.claim]
    lines += _not_judged(comparison)
    if comparison.resolution is not None:
        half_width = comparison.resolution.half_width_percent
        lines.append(f"A/A control: this machine cannot tell less than {half_width:.2g} % from nothing.")
    lines += [f"Warning: {warning.text}" for warning in comparison.warnings]
    return list(dict.fromkeys([*lines, *_row_warnings(comparison)]))


def _not_judged(comparison: Comparison) -> list[str]:
    by_cell: dict[tuple[str, str], list[str]] = {}
    for each in comparison.settings.get("not_judged", ()):
        values = f"{_number(each['base_value'])} and {_number(each['other_value'])} {each['unit']}"
        title = METRICS[each["metric"]].title
        by_cell.setdefault((each["cell"], each["other"]), []).append(f"{title} {values}")
    return [f"Not judged: {cell}, {other}: {', '.join(texts)}." for (cell, other), texts in by_cell.items()]


def _row_warnings(comparison: Comparison) -> list[str]:
    """Return one line per kind of warning with a size: its worst case; those without one as they are."""
    by_code: dict[str, list[tuple[str, WarningRecord]]] = {}
    several = len({_cell(row) for row in comparison.metrics}) > 1
    for row in comparison.metrics:
        place = f"{_cell(row)}: " if several else ""
        for warning in row.warnings:
            by_code.setdefault(warning.code, []).append((place, warning))
    lines = []
    for found in by_code.values():
        if all(warning.value is not None for _, warning in found):
            place, worst = max(found, key=lambda each: abs(each[1].value or 0.0))
            texts = {warning.text for _, warning in found}
            lines.append(f"Warning: {place}{worst.text}" + (f" (worst of {len(texts)})" if len(texts) > 1 else ""))
        else:
            lines += [f"Warning: {place}{warning.text}" for place, warning in _once(found)]
    return lines


def _once(found: list[tuple[str, WarningRecord]]) -> list[tuple[str, WarningRecord]]:
    """Return each text once, under the first cell that has it."""
    by_text: dict[str, tuple[str, WarningRecord]] = {}
    for place, warning in found:
        by_text.setdefault(warning.text, (place, warning))
    return list(by_text.values())


def _cells(row: ComparedMetric) -> tuple[str, ...]:
    in_ms = row.budget_unit == "ms"
    budget = "–" if row.budget is None else f"+{row.budget:g} ms" if in_ms else f"{row.budget:g} %"
    overhead = "–" if row.overhead_percent is None else f"{_signed(row.overhead_percent)} %"
    return (
        _cell(row),
        f"{_title(row)}, {row.unit}",
        _number(row.base_value),
        _number(row.other_value),
        _absolute(row) if in_ms else overhead,
        _interval(row),
        budget,
        said(row) + (f" ({row.pairs} pairs)" if row.pairs else ""),
    )


def _cell(row: ComparedMetric) -> str:
    return printable(cell_title(row.workload, row.scenario, row.batch_size))


def _title(row: ComparedMetric) -> str:
    return METRICS[row.metric].title if row.metric in METRICS else printable(row.metric)


def _absolute(row: ComparedMetric) -> str:
    return "–" if row.overhead_absolute is None else f"{_signed(row.overhead_absolute)} ms"


def _interval(row: ComparedMetric) -> str:
    """Return the interval in the unit of the budget; a bound that does not exist is infinite."""
    bounds = row.ci95_absolute if row.budget_unit == "ms" else row.ci95_percent
    if bounds is None:
        return "none"
    low, high = bounds
    return f"{'−∞' if low is None else _signed(low)} to {'+∞' if high is None else _signed(high)}"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _signed(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:+,.0f}" if abs(value) >= 1000 else f"{value:+.3g}"
