"""Tables of neighbours: who slows a measured tenant by how much, and which promises of isolation held; pure."""

from __future__ import annotations

from dataclasses import replace

from gputax.report import wording
from gputax.report.model import Cell, Column, Table, text_cell
from gputax.report.sharing_answers import (
    NOT_DISTINGUISHABLE,
    Experiment,
    fails_by_nature,
    is_stand_in,
    neighbour_reason,
    slowed,
    technique_title,
)
from gputax.results.documents.sharing import IsolationRow, NeighbourRow, SharedFigure

NEIGHBOUR_COLUMNS = (
    Column("technique", "technique"),
    Column("aggressor", "neighbour"),
    Column("victim", "measured tenant"),
    Column("slowdown_percent", "slowdown", align="right", interval=True),
    Column("p99_slowdown_percent", "of p99", align="right", interval=True),
    Column("alone", "alone", "ms", "right", short="alone ms"),
    Column("beside", "beside it", "ms", "right", short="beside ms"),
    Column("pairs", "pairs", align="right", spare=1),
    Column("errors", "errors", align="right"),
    Column("valid", "valid", hidden=True),
    Column("stand_in", "stand-in", hidden=True),
    Column("reason", "reason", hidden=True),
    Column("device", "device", hidden=True),
    Column("directory", "document", hidden=True),
)
ISOLATION_COLUMNS = (
    Column("technique", "technique"),
    Column("check", "promise"),
    Column("verdict", "result"),
    Column("text", "what happened"),
    Column("stand_in", "stand-in", hidden=True),
    Column("device", "device", hidden=True),
    Column("directory", "document", hidden=True),
)
SLOWDOWN_NOTE = (
    "Slowdown of the measured tenant's mean latency, in pairs (alone, beside a neighbour); positive is slower."
)
NOT_TRIED = "not tried"
BY_NATURE = "by nature of the stand-in"
NATURE_NOTE = (
    "By nature of the stand-in: its tenants are processes of one user, and Linux lets a user read its own processes. "
    "This does not apply to GPU sharing techniques."
)


def neighbours_table(experiment: Experiment, victim: str | None = None) -> Table:
    """Return a measured tenant, or all of them, beside every kind of neighbour."""
    chosen = [row for row in experiment.record.neighbours if victim in (None, row.victim)]
    rows = tuple(_neighbour_row(experiment, row) for row in chosen)
    title = experiment.titled("a tenant beside a neighbour")
    table = Table("neighbours", title, NEIGHBOUR_COLUMNS, rows, (SLOWDOWN_NOTE,))
    return replace(table, console=(_console_table(experiment, table, list(dict.fromkeys(r.victim for r in chosen))),))


def _console_table(experiment: Experiment, table: Table, victims: list[str]) -> Table:
    """Return the same for a console: the only measured tenant is in the title."""
    several, errors = len(victims) != 1, any(row.errors for row in experiment.record.neighbours)
    hidden = {"victim": not several, "errors": not errors}
    columns = tuple(replace(column, hidden=hidden.get(column.key, column.hidden)) for column in table.columns)
    shorter = {i for i, column in enumerate(columns) if column.key in ("slowdown_percent", "p99_slowdown_percent")}
    rows = tuple(
        tuple(
            replace(cell, text=cell.text.replace("(95 % CI ", "("), detail="" if cell.tone != "fail" else cell.detail)
            if i in shorter
            else cell
            for i, cell in enumerate(row)
        )
        for row in table.rows
    )
    only = victims[0].removeprefix(f"{experiment.record.workload}, ") if victims else ""
    what = "a tenant beside a neighbour" if several else f"{only} beside a neighbour"
    claim = experiment.record.claim
    notes = ["Slowdown of its mean latency, in pairs; in brackets the 95 % interval."]
    notes += [f"Claim: {claim}."] if claim else []
    return replace(table, title=experiment.titled(what), columns=columns, rows=rows, notes=tuple(notes), grouped=True)


def _neighbour_row(experiment: Experiment, row: NeighbourRow) -> tuple[Cell, ...]:
    reason = neighbour_reason(row)
    shown = (_slowdown(row.slowdown_percent), _slowdown(row.p99_slowdown_percent))
    alone, beside = row.alone_ms, row.beside_ms
    figures = (Cell(wording.number(alone), wording.finite(alone)), Cell(wording.number(beside), wording.finite(beside)))
    if not row.valid:
        shown = (Cell("invalid", detail=reason, tone="fail"), Cell(wording.DASH))
        figures = (Cell(wording.DASH), Cell(wording.DASH))
    return (
        Cell(technique_title(row.technique), row.technique),
        text_cell(row.aggressor),
        text_cell(row.victim),
        *shown,
        *figures,
        Cell(f"{row.pairs:,}", row.pairs),
        Cell(f"{row.errors:,}", row.errors, tone="fail" if row.errors else ""),
        Cell("", row.valid),
        Cell("", is_stand_in(row.technique)),
        text_cell(reason),
        text_cell(experiment.device),
        text_cell(experiment.path),
    )


def _slowdown(figure: SharedFigure | None) -> Cell:
    if figure is None:
        return Cell(wording.DASH)
    none = slowed(figure) is False and wording.finite(figure.value) is not None
    return Cell(
        wording.overhead(figure.value, figure.ci95, "%"),
        wording.finite(figure.value),
        *wording.known_bounds(figure.ci95, "%"),
        detail=f"{NOT_DISTINGUISHABLE} from none" if none else "",
    )


def isolation_table(experiment: Experiment) -> Table | None:
    """Return every promise of isolation with pass, fail or not tried, in words."""
    rows = tuple(
        (
            Cell(technique_title(row.technique), row.technique),
            text_cell(row.check),
            _result(row),
            text_cell(row.text),
            Cell("", is_stand_in(row.technique)),
            text_cell(experiment.device),
            text_cell(experiment.path),
        )
        for row in experiment.record.isolation
    )
    notes = (NATURE_NOTE,) if any(fails_by_nature(row) for row in experiment.record.isolation) else ()
    table = Table("isolation", experiment.titled("isolation"), ISOLATION_COLUMNS, rows, notes)
    return replace(table, console=(_isolation_console(table),)) if rows else None


def _isolation_console(table: Table) -> Table:
    """Return the same for a console; the findings are sentences below the table, too long for its cells."""
    columns = tuple(replace(column, hidden=column.hidden or column.key == "text") for column in table.columns)
    rows = tuple(
        tuple(
            replace(cell, detail=": ".join(filter(None, (cell.detail, row[3].text))))
            if column.key == "verdict"
            else cell
            for cell, column in zip(row, table.columns, strict=True)
        )
        for row in table.rows
    )
    return replace(table, columns=columns, rows=rows, grouped=True)


def _result(row: IsolationRow) -> Cell:
    if row.passed is None:
        return Cell(f"{wording.DASH} {NOT_TRIED}", NOT_TRIED, tone="muted")
    if row.passed:
        return Cell(wording.marked("pass"), "pass", tone="pass")
    return Cell(wording.marked("fail"), "fail", detail=BY_NATURE if fails_by_nature(row) else "", tone="fail")
