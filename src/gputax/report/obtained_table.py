"""The table of asked against obtained: what each tenant asked for, what it got beside whom, and the verdict; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gputax.plan.shares import BESIDE
from gputax.report import wording
from gputax.report.model import Cell, Column, Section, Table, Tone, notes_once, text_cell
from gputax.report.sharing_answers import Experiment, is_stand_in, technique_title
from gputax.results.documents.sharing import ObtainedRow
from gputax.text import digits

COLUMNS = (
    Column("technique", "technique"),
    Column("tenant", "tenant", align="right"),
    Column("situation", "beside"),
    Column("resource", "share of"),
    Column("asked", "asked", "%", "right", short="asked"),
    Column("obtained", "obtained", "%", "right", interval=True, short="obtained"),
    Column("verdict", "verdict"),
    Column("reason", "why"),
    Column("repeats", "repeats", align="right"),
    Column("exactly", "a cap as well", hidden=True),
    Column("stand_in", "stand-in", hidden=True),
    Column("device", "device", hidden=True),
    Column("directory", "document", hidden=True),
)
NOT_ASKED = "not asked for"
OBTAINED_NOTE = (
    "Obtained: the tenant's rate over that of one with the whole device, in the same repeat; of memory, what it could "
    "allocate. In brackets the 95 % interval."
)
GREEDY_NOTE = "Greedy ones have four times as many runs in flight."


def obtained_table(experiment: Experiment) -> Table | None:
    """Return what was asked for and what was obtained; None if no tenant asked for a share."""
    record = experiment.record
    if not record.obtained:
        return None
    rows = tuple(_row(experiment, row) for row in record.obtained)
    tolerance = digits(float(record.plan.get("tolerance_percent", 0.0)), 3)
    title = experiment.titled(f"asked against obtained, tolerance {tolerance} %")
    table = Table("obtained", title, COLUMNS, rows, (OBTAINED_NOTE, GREEDY_NOTE))
    return replace(table, console=(_console(table, experiment),))


def obtained_section(experiments: Sequence[Experiment]) -> Section | None:
    """Return the tables of all experiments whose tenants asked for shares."""
    tables = tuple(table for each in experiments if (table := obtained_table(each)) is not None)
    stripped, notes = notes_once(tables)
    return Section("obtained", "Asked against obtained", tables=stripped, notes=notes) if tables else None


def _console(table: Table, experiment: Experiment) -> Table:
    """Return the same for a console: the technique as a heading, the reasons as notes where there is no figure."""
    hidden = {"reason", "repeats"}
    columns = tuple(replace(column, hidden=column.hidden or column.key in hidden) for column in table.columns)
    claim = experiment.record.claim
    reasons = dict.fromkeys(
        row.reason for row in experiment.record.obtained if row.verdict in ("fail", "inconclusive", "not comparable")
    )
    notes = [OBTAINED_NOTE, GREEDY_NOTE, *([f"Claim: {claim}."] if claim else [])]
    notes += [f"{reason[:1].upper()}{reason[1:]}." for reason in list(reasons)[:MOST_REASONS]]
    return replace(table, columns=columns, notes=tuple(notes), grouped=True)


MOST_REASONS = 3


def _row(experiment: Experiment, row: ObtainedRow) -> tuple[Cell, ...]:
    value = wording.finite(row.obtained.value)
    low, high = row.obtained.ci95 or (None, None)
    asked = Cell(wording.DASH) if row.asked is None else Cell(digits(100.0 * row.asked, 3), 100.0 * row.asked)
    tenants = ",".join(str(number) for number in (row.tenant, *row.same_as))
    return (
        Cell(technique_title(row.technique), row.technique),
        Cell(tenants, row.tenant),
        text_cell(BESIDE[row.situation]),
        text_cell(row.resource),
        asked,
        _share(value, low, high),
        _verdict(row),
        text_cell(row.reason),
        Cell(f"{row.repeats}", row.repeats),
        Cell("", row.exactly),
        Cell("", is_stand_in(row.technique)),
        text_cell(experiment.device),
        text_cell(experiment.path),
    )


def _share(value: float | None, low: float | None, high: float | None) -> Cell:
    if value is None:
        return Cell(wording.DASH)
    text = digits(100.0 * value, 3)
    if low is None or high is None:
        return Cell(text, 100.0 * value)
    interval = f" ({digits(100.0 * low, 3)} to {digits(100.0 * high, 3)})"
    return Cell(f"{text}{interval}", 100.0 * value, 100.0 * low, 100.0 * high)


def _verdict(row: ObtainedRow) -> Cell:
    if row.verdict is None:
        return Cell(NOT_ASKED, tone="muted")
    tone: Tone = row.verdict
    word = {"inconclusive": "undecided", "fail": "FAIL"}.get(row.verdict, row.verdict)
    return Cell(word, row.verdict, tone=tone)
