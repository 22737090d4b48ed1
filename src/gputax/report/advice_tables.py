"""The table of advice: the rows that decide it, as measured and by the models; pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import TextIO

from gputax.advise.advice import Advice, Considered
from gputax.advise.rows import Row
from gputax.advise.wording import answer, between, cost_text, given, model_lines, notes, number
from gputax.report.exporters.console_text import Screen
from gputax.report.model import Cell, Column, Table, Tone, text_cell
from gputax.text import plain

EACH = "each/s"
TONES: dict[str, Tone] = {"yes": "pass", "no": "fail", "unsure": "inconclusive"}


def write_advice(advice: Advice, stream: TextIO, width: int | None = None) -> None:
    """Write the answer, its table, the models, and what must be read with them."""
    screen = Screen(stream, width)
    screen.say(plain(answer(advice)), "bold")
    screen.say("")
    screen.table(advice_table(advice))
    screen.say("")
    screen.say("Models of the mean latency L of N tenants, in ms:")
    for each in advice.considered:
        for line in model_lines(each):
            screen.say(" " * (len(line) - len(line.lstrip())) + plain(line))
    screen.say("")
    for note in notes(advice):
        screen.say(plain(note))


def advice_table(advice: Advice) -> Table:
    """Return the rows that decide the advice; `--json` has all of them."""
    rows = tuple(_row(advice, row) for each in advice.considered for row in shown_rows(each, advice.named))
    worst = any(figure.of_worst for row in advice.rows for figure in row.figures)
    title = f"{advice.table.title}, on {advice.table.device_label}: {advice.question}"
    notes = ("Latency and rate of the worst tenant.",) if worst else ()
    return Table("advice", plain(title), _columns(advice), rows, notes, grouped=True)


def _columns(advice: Advice) -> tuple[Column, ...]:
    names = [f"{target.statistic} ms" for target in advice.question.targets]
    names += [EACH] if advice.question.rate_per_s is not None else []
    # What is published is the mean: a throughput can only be worked out from it.
    by_mean = "by published mean:" if advice.table.published else "measured"
    columns = [Column("technique", "technique"), Column("tenants", "tenants", align="right"), Column("basis", "basis")]
    for i, name in enumerate(names):
        source = by_mean if name == EACH else given(advice)
        columns.append(Column(f"given_{name}", f"{source} {name}", align="right", spare=3 if i else 0))
        columns.append(Column(f"model_{name}", f"model {name} (95 % interval)", align="right", short=f"model {name}"))
    columns.append(Column("given_together", f"{by_mean} together/s", align="right", spare=1))
    columns.append(Column("model_together", "model together/s", align="right", spare=2))
    if advice.question.price_per_h is not None:
        columns.append(Column("cost", f"{advice.question.currency} per million".strip(), align="right"))
    return (*columns, Column("verdict", "meets"))


def _row(advice: Advice, row: Row) -> tuple[Cell, ...]:
    cells = [
        text_cell(row.title),
        Cell(str(row.tenants), row.tenants),
        text_cell(given(advice) if row.basis == "measured" else row.basis),
    ]
    for figure in row.figures:
        cells.append(Cell(number(figure.measured), figure.measured))
        bounds = between(figure.low, figure.high)
        cells.append(Cell(f"{number(figure.value)} ({bounds})", figure.value, figure.low, figure.high))
    cells += [Cell(number(value), value) for value in (row.measured_per_s, row.aggregate_per_s[0])]
    if advice.question.price_per_h is not None:
        cells.append(Cell(cost_text(advice, row).split()[0], row.cost_per_million))
    meets = row.meets if row.has_interval or row.meets == "unsure" else f"{row.meets}, no interval"
    return (*cells, Cell(meets, row.meets, tone=TONES[row.meets]))


def shown_rows(each: Considered, named: Collection[Row] = ()) -> list[Row]:
    """Return the measured rows, both sides of every change of verdict, and those named."""
    rows = each.rows
    changes = {index for index in range(1, len(rows)) if rows[index].meets != rows[index - 1].meets}
    edges = changes | {index - 1 for index in changes}
    if rows and rows[-1].meets != "no":
        edges.add(len(rows) - 1)
    return [row for index, row in enumerate(rows) if row.was_measured or index in edges or row in named]
