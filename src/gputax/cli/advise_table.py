"""Advice on the terminal: the answer, the rows that decide it, the models, and what must be read with them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gputax.advise.advice import Advice, Considered
from gputax.advise.rows import Row
from gputax.advise.wording import answer, between, cost_text, given, model_lines, notes, number
from gputax.results.importers.source import printable

WIDTH_WITHOUT_TERMINAL = 120
WIDEST = 400
EACH = "each/s"
LONGEST_LINE = 900
COLOURS = {"yes": "green", "no": "red", "unsure": "yellow"}


def advise_table(advice: Advice, stream: TextIO) -> None:
    """Write the advice for people."""
    width = None if stream.isatty() else WIDTH_WITHOUT_TERMINAL
    console = Console(file=stream, highlight=False, markup=False, emoji=False, width=width)

    def say(line: str, style: str = "") -> None:
        console.print(Text(printable(line, LONGEST_LINE), style=style))

    say(answer(advice), "bold")
    # A file has no width: better a long line than a figure cut short.
    wide = console if width is None else Console(file=stream, highlight=False, markup=False, emoji=False, width=WIDEST)
    wide.print(_table(advice))
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
    # What is published is the mean: a throughput can only be worked out from it.
    from_mean = "by published mean:\n" if advice.table.published else "measured\n"
    of_source = f"{given(advice)}\n"
    worst = "\nworst tenant" if any(figure.of_worst for row in advice.rows for figure in row.figures) else ""
    for name in _figure_names(advice):
        table.add_column(f"{from_mean if name == EACH else of_source}{name}{worst}", justify="right")
        table.add_column(f"model {name},\n95 % interval{worst}", justify="right", no_wrap=True)
    table.add_column(f"{from_mean}together/s", justify="right")
    table.add_column("model\ntogether/s", justify="right")
    if advice.question.price_per_h is not None:
        table.add_column(f"{advice.question.currency} per\nmillion".strip(), justify="right")
    table.add_column("meets", no_wrap=True)
    for each in advice.considered:
        for row in shown_rows(each, advice.named):
            table.add_row(*map(Text, _cells(advice, row)), Text(_meets(row), style=COLOURS[row.meets]))
    return table


def shown_rows(each: Considered, named: Collection[Row] = ()) -> list[Row]:
    """Return the measured rows, both sides of every change of verdict, and those named; `--json` has them all."""
    rows = each.rows
    changes = {index for index in range(1, len(rows)) if rows[index].meets != rows[index - 1].meets}
    edges = changes | {index - 1 for index in changes}
    if rows and rows[-1].meets != "no":
        edges.add(len(rows) - 1)
    return [row for index, row in enumerate(rows) if row.was_measured or index in edges or row in named]


def _figure_names(advice: Advice) -> list[str]:
    names = [f"{target.statistic} ms" for target in advice.question.targets]
    return [*names, *([EACH] if advice.question.rate_per_s is not None else [])]


def _cells(advice: Advice, row: Row) -> list[str]:
    cells = [row.title, str(row.tenants), given(advice) if row.basis == "measured" else row.basis]
    gap = "  " if len(row.figures) == 1 else "\n"
    for figure in row.figures:
        cells += [number(figure.measured), f"{number(figure.value)}{gap}{between(figure.low, figure.high)}"]
    cells += [number(row.measured_per_s), number(row.aggregate_per_s[0])]
    if advice.question.price_per_h is not None:
        cells.append(cost_text(advice, row).split()[0])
    return cells


def _meets(row: Row) -> str:
    return row.meets if row.has_interval or row.meets == "unsure" else f"{row.meets}, no interval"
