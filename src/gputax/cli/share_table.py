"""The tables of a sharing experiment: what tenants got, the users' own table, and all that must be read with them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gputax.plan.techniques import TECHNIQUES
from gputax.results.documents.sharing import SharedFigure, SharedRow, SharingRecord

WIDTH_WITHOUT_TERMINAL = 150


def console_for(stream: TextIO) -> Console:
    """Return a console that is as wide as the terminal, or wide enough for the tables."""
    return Console(file=stream, highlight=False, width=None if stream.isatty() else WIDTH_WITHOUT_TERMINAL)


def share_table(record: SharingRecord, directory: Path, stream: TextIO) -> None:
    """Write the experiment's results for people."""
    console = console_for(stream)
    if record.rows:
        console.print(_figures(record))
        console.print(_mean_seconds(record))
    for failure in record.failures:
        console.print(f"FAILED {failure.cell}: {failure.what}", markup=False, style="red")
        for name, text in (("where", failure.where), ("next", failure.next)):
            if text:
                console.print(f"       {name}: {text}", markup=False)
    for line in notes(record):
        console.print(line, markup=False)
    console.print(f"Results: {directory}", markup=False)


def technique_title(name: str) -> str:
    """Return the technique's name for people, as the report has it; a stand-in says so."""
    technique = TECHNIQUES.get(name)
    if technique is None:
        return name
    return f"{name} (stand-in)" if technique.stand_in else technique.title


def _figures(record: SharingRecord) -> Table:
    title = f"{record.workload}, tenants of one device: {record.place} on {record.device_label}"
    table = Table(title=Text(title), title_justify="left")
    table.add_column("technique")
    table.add_column("tenants", justify="right")
    table.add_column("may use")
    for name in ("mean ms", "worst ms", "p50 ms", "p90 ms", "p99 ms", "together/s", "Jain", "slowdown"):
        table.add_column(name, justify="right")
    before = ""
    for row in record.rows:
        if before and row.technique != before:
            table.add_section()
        table.add_row(*_row(row, row.technique != before))
        before = row.technique
    return table


def _row(row: SharedRow, first: bool) -> tuple[str, ...]:
    return (
        technique_title(row.technique) if first else "",
        str(row.tenants),
        row.entitlement,
        _with_interval(row.mean_ms),
        _number(row.worst_tenant_mean_ms.value),
        _number(row.p50_ms.value),
        _number(row.p90_ms.value),
        _number(row.p99_ms.value),
        _with_interval(row.aggregate_per_s),
        _number(row.jain.value),
        "1" if row.tenants == 1 else _with_interval(row.slowdown),
    )


def _mean_seconds(record: SharingRecord) -> Table:
    """Return the table in the shape that users know: seconds, most tenants first."""
    counts = sorted({row.tenants for row in record.rows}, reverse=True)
    word = "Pod" if record.place == "k8s" else "tenant"
    table = Table(title=Text("Mean inference time in seconds"), title_justify="left")
    table.add_column("")
    for count in counts:
        table.add_column(f"{count} {word}{'s' if count != 1 else ''}", justify="right")
    for technique in dict.fromkeys(row.technique for row in record.rows):
        means = {row.tenants: row.mean_ms.value for row in record.rows if row.technique == technique}
        table.add_row(technique_title(technique), *(_seconds(means.get(count)) for count in counts))
    return table


def notes(record: SharingRecord) -> list[str]:
    """Return what must be read with the tables, each thing said once."""
    lines = [f"Claim: {record.claim}."] if record.claim else []
    if record.rows:
        repeats = sorted({row.repeats for row in record.rows})
        words = str(repeats[0]) if len(repeats) == 1 else f"{repeats[0]} to {repeats[-1]}"
        lack = ", which one repeat does not have" if repeats[0] == 1 else ""
        lines.append(
            f"Over {words} repeat{'s' if repeats != [1] else ''} with new processes each; "
            f"[ ] is the 95 % interval between repeats{lack}."
        )
        lines.append(
            "Worst: the mean of the slowest tenant. Jain: 1 if all tenants got the same, 1/N if one got all. "
            "Slowdown: against 1 tenant of the technique."
        )
    if any(None in (row.p50_ms.value, row.p90_ms.value, row.p99_ms.value) for row in record.rows):
        lines.append("–: too few inferences in a repeat for that percentile (p50 needs 10, p90 64, p99 662).")
    threads = {result.threads for cell in record.cells for result in cell.results if result.threads}
    if threads and record.device == "cpu":
        lines.append(f"Threads of each tenant: {', '.join(map(str, sorted(threads)))}, whatever their number.")
    invalid = [cell.cell for cell in record.cells if not cell.valid]
    if invalid:
        lines.append(f"INVALID, not in the tables: {', '.join(invalid)}.")
    checks = [cell.cross_check for cell in record.cells if cell.cross_check is not None]
    if checks:
        worst = max(checks, key=lambda check: abs(check.difference_percent))
        lines.append(
            f"Prometheus, asked by the users' query in {len(checks)} cell{'s' if len(checks) != 1 else ''}, "
            f"differs by at most {abs(worst.difference_percent):.2g} %."
        )
    lines += [f"Note: {warning.text}" for warning in record.warnings]
    return lines + _warnings(record)


def _warnings(record: SharingRecord) -> list[str]:
    """Return one line per kind of warning: its worst case, and how many cells share it."""
    by_code: dict[str, list[tuple[float, str, str]]] = {}
    for cell in record.cells:
        for warning in cell.warnings:
            by_code.setdefault(warning.code, []).append((abs(warning.value or 0.0), warning.text, cell.cell))
    lines = []
    for cases in by_code.values():
        _, text, cell_id = max(cases)
        shared = f"; worst of {len(cases)} cells" if len(cases) > 1 else ""
        lines.append(f"Warning: {text} ({cell_id}{shared})")
    return lines


def _with_interval(figure: SharedFigure) -> str:
    if figure.value is None:
        return "–"
    if figure.ci95 is None:
        return _number(figure.value)
    return f"{_number(figure.value)} [{', '.join(_number(bound) for bound in figure.ci95)}]"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _seconds(value_ms: float | None) -> str:
    """Return seconds with four digits that count, never as a power of ten."""
    if value_ms is None:
        return "–"
    value_s = float(f"{value_ms / 1000:.4g}")
    decimals = 3 - math.floor(math.log10(value_s)) if value_s > 0 else 0
    text = f"{value_s:.{max(0, decimals)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
