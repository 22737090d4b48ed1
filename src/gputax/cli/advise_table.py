"""Advice on the terminal: the answer, the rows that decide it, the models, and what must be read with them."""

from __future__ import annotations

from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gputax.advise.advice import Advice, Considered, Figure, Row
from gputax.advise.wording import answer, between, cost_text, given, model_lines, notes, number
from gputax.results.importers.source import printable

WIDTH_WITHOUT_TERMINAL = 120
LONGEST_LINE = 900
COLOURS = {"yes": "green", "no": "red", "unsure": "yellow"}


def advise_table(advice: Advice, stream: TextIO) -> None:
    """Write the advice for people."""
    width = None if stream.isatty() else WIDTH_WITHOUT_TERMINAL
    console = Console(file=stream, highlight=False, markup=False, emoji=False, width=width)

    def say(line: str, style: str = "") -> None:
        console.print(Text(printable(line, LONGEST_LINE), style=style))

    say(answer(advice), "bold")
    console.print(_table(advice))
    say("Models of the mean latency L of N tenants, in ms:")
    for each in advice.considered:
        for line in model_lines(each):
            say(line)
    say("")
    for line in notes(advice):
        say(line)


def _table(advice: Advice) -> Table:
    title = f"{advice.table.title}, on {advice.table.device_label}: {advice.question}"
    table = Table(
        title=Text(printable(title, LONGEST_LINE)), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    table.add_column("technique")
    table.add_column("tenants", justify="right")
    table.add_column("basis", no_wrap=True)
    table.add_column(f"{given(advice)} mean", justify="right")
    for name in _columns(advice):
        table.add_column(name, justify="right")
    table.add_column("together/s", justify="right")
    if advice.question.price_per_h is not None:
        table.add_column(f"{advice.question.currency} per million".strip(), justify="right")
    table.add_column("meets", no_wrap=True)
    for each in advice.considered:
        for row in shown_rows(each):
            table.add_row(*map(Text, _cells(advice, row)), Text(row.meets, style=COLOURS[row.meets]))
    return table


def shown_rows(each: Considered) -> list[Row]:
    """Return the measured rows and both sides of every change of verdict; `--json` has them all."""
    rows = each.rows
    changes = {index for index in range(1, len(rows)) if rows[index].meets != rows[index - 1].meets}
    edges = changes | {index - 1 for index in changes}
    if rows and rows[-1].meets != "no":
        edges.add(len(rows) - 1)
    return [row for index, row in enumerate(rows) if row.measured_ms is not None or index in edges]


def _columns(advice: Advice) -> list[str]:
    names = [f"{target.statistic} ms, 95 % interval" for target in advice.question.targets]
    return [*names, *(["each/s, 95 % interval"] if advice.question.rate_per_s is not None else [])]


def _cells(advice: Advice, row: Row) -> list[str]:
    basis = given(advice) if row.basis == "measured" else row.basis
    cells = [row.title, str(row.tenants), basis, number(row.measured_ms), *map(_figure, row.figures)]
    cells.append(number(row.aggregate_per_s[0]))
    if advice.question.price_per_h is not None:
        cells.append(cost_text(advice, row).split()[0])
    return cells


def _figure(figure: Figure) -> str:
    return f"{number(figure.value)}  {between(figure.low, figure.high)}"
