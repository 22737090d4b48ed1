"""One table of several environments: a row per metric, a column per environment, the base first; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gputax.report import wording
from gputax.report.comparison_tables import reason, with_unit
from gputax.report.grouping import Compared, Pair
from gputax.report.model import Cell, Column, Table, Tone, text_cell
from gputax.results.documents.comparison import ComparedMetric, Side
from gputax.results.importers.source import UNNAMED
from gputax.text import decimals_beside, decimals_for

NAME = "environments"
ALL_CELLS = "all cells"
BY_VALUE_NOTE = "? over, ? within: undecided; the value by itself is over or within its budget."
FILE_TIME_NOTE = "*: the time at which the file was written; it has no date."


@dataclass(frozen=True)
class Line:
    """One metric of one cell, in every environment that has it."""

    cell: str
    metric: str
    by_label: dict[str, ComparedMetric]

    @property
    def first(self) -> ComparedMetric:
        """Any of them: the base's value and the unit are the same in all."""
        return next(iter(self.by_label.values()))


def side_by_side(pairs: Sequence[Pair]) -> Table | None:
    """Return the table where two or more environments were compared with the same base; else None.

    Each duet measures its own base, so duets do not share a column.
    """
    others = [pair.other.label for pair in pairs]
    if len(pairs) < 2 or len({pair.base.label for pair in pairs}) > 1 or len(set(others)) < len(others):
        return None
    if any(row.metric.paired for pair in pairs for row in pair.rows):
        return None
    base, lines = pairs[0].base, _lines(row for pair in pairs for row in pair.rows)
    sides = [base, *(pair.other for pair in pairs)]
    several = len({line.cell for line in lines}) > 1
    columns = (
        Column("cell", "cell", hidden=not several),
        Column("metric", "metric"),
        *(Column(f"side_{number}", side.label, align="right") for number, side in enumerate(sides)),
    )
    cells = list(dict.fromkeys(line.cell for line in lines))
    subject = "Side by side," if several or cells == [UNNAMED] else f"Side by side, {cells[0]},"
    title = wording.on_device(subject, [device for pair in pairs for device in pair.devices])
    frame = [*_budget_rows(lines, others), *_measured_rows(sides)]
    frame = [(text_cell(ALL_CELLS), *row) for row in frame]
    rows = [_row(line, others, _other_cell) for line in lines]
    console = [_row(line, others, _console_cell) for line in lines]
    notes = _notes(lines, sides)
    short = Table(NAME, title, columns, (*console, *frame), notes, grouped=several)
    return Table(NAME, title, columns, (*rows, *frame), notes, console=(short,))


def _lines(rows: Iterable[Compared]) -> list[Line]:
    found: dict[tuple[str, str], Line] = {}
    for row in rows:
        key = row.cell, row.metric.metric
        found.setdefault(key, Line(*key, {})).by_label.setdefault(row.other.label, row.metric)
    return list(found.values())


def _row(line: Line, others: Sequence[str], cell_of: Callable[[ComparedMetric | None], Cell]) -> tuple[Cell, ...]:
    return (
        text_cell(line.cell),
        Cell(_title(line), line.metric),
        _base_cell(line),
        *(cell_of(line.by_label.get(label)) for label in others),
    )


def _title(line: Line) -> str:
    """Return the metric; a rate with its unit, which would make every column wide."""
    title = wording.metric_title(line.metric)
    return f"{title} ({line.first.unit})" if line.metric == "throughput" else title


def _value(value: float | None, metric: ComparedMetric) -> str:
    return wording.number(value) if metric.metric == "throughput" else with_unit(value, metric.unit)


def _base_cell(line: Line) -> Cell:
    known = [metric.base_value for metric in line.by_label.values() if wording.finite(metric.base_value) is not None]
    value = known[0] if known else None
    return Cell(_value(value, line.first), wording.finite(value))


def _other_cell(metric: ComparedMetric | None) -> Cell:
    """Return a page's cell: value and overhead in one line, what is said of it below."""
    if metric is None:
        return Cell(wording.DASH, tone="muted")
    value, cost = _value(metric.other_value, metric), short_cost(metric)
    text = value if cost == wording.DASH else f"{value} ({cost})"
    words = said(metric) + (" by value" if by_value(metric) else "")
    detail = "; ".join(each for each in (_interval(metric), words, _why(metric)) if each)
    return Cell(text, wording.finite(metric.overhead_percent), detail=detail, tone=_tone(metric))


def _console_cell(metric: ComparedMetric | None) -> Cell:
    """Return a terminal's cell, in which each of them has a line of its own."""
    if metric is None:
        return Cell(wording.DASH, tone="muted")
    cost, interval = short_cost(metric), _interval(metric)
    lines = [_value(metric.other_value, metric), "" if cost == wording.DASH else cost, interval, said(metric)]
    why = _why(metric)
    # A reason is said below the table, where nothing else tells whose it is.
    return Cell("\n".join(filter(None, lines)), detail=f"{metric.other}: {why}" if why else "", tone=_tone(metric))


def _why(metric: ComparedMetric) -> str:
    """Return the reason for a missing number."""
    return "" if wording.finite(metric.other_value) is not None else reason(metric)


def _interval(metric: ComparedMetric) -> str:
    """Return e.g. `2.6 to 3.8`; empty if there is none."""
    return wording.metric_overhead(metric).partition("95 % CI ")[2].rstrip(")").replace("+", "")


def short_cost(metric: ComparedMetric) -> str:
    """Return the overhead without its interval, never rounded onto its budget."""
    percent = wording.finite(metric.overhead_percent)
    if percent is None or metric.budget_unit == "ms":
        return wording.short_overhead(metric)
    decimals = decimals_beside(metric.budget, decimals_for(percent), percent)
    return f"{wording.signed(percent, decimals)} %"


def said(metric: ComparedMetric) -> str:
    """Return the verdict in at most two words: a mark, and of what is undecided where its value lies."""
    if wording.said(metric) == wording.NOT_JUDGED:
        return wording.NOT_JUDGED
    if metric.verdict == "not comparable":
        return f"{wording.MARKS[metric.verdict]} differs"
    if metric.verdict != "inconclusive":
        return wording.marked(metric.verdict)
    return f"{wording.MARKS[metric.verdict]} {by_value(metric) or wording.WORDS[metric.verdict]}"


def by_value(metric: ComparedMetric) -> str:
    """Return `over` or `within` for an undecided metric whose value lies on that side of its budget."""
    return (metric.by_value or "").partition(" ")[0]


def _tone(metric: ComparedMetric) -> Tone:
    return "muted" if wording.said(metric) == wording.NOT_JUDGED else metric.verdict


def _budget_rows(lines: Sequence[Line], others: Sequence[str]) -> list[tuple[Cell, ...]]:
    """Return the budgets of each environment, once for all metrics that share them; the most common ones first."""
    groups: list[tuple[dict[str, str], list[str]]] = []
    for line in lines:
        own = {label: wording.budget(metric) for label, metric in line.by_label.items()}
        shared = ((group, own.keys() & group[0].keys()) for group in groups)
        fitting = (group for group, labels in shared if labels and all(group[0][each] == own[each] for each in labels))
        budgets, names = next(fitting, ({}, []))
        if not names:
            groups.append((budgets, names))
        budgets.update(own)
        names.append(wording.metric_title(line.metric))
    ordered = sorted(groups, key=lambda group: -len(group[1]))
    return [
        _frame_row(
            "budget" if not number else f"budget, {wording.some(list(dict.fromkeys(names)), 2)}",
            "",
            (budgets.get(label, wording.DASH) for label in others),
        )
        for number, (budgets, names) in enumerate(ordered)
    ]


def _measured_rows(sides: Sequence[Side]) -> list[tuple[Cell, ...]]:
    dates = [side.measured[:10] + ("*" if side.measured_by == "mtime" else "") for side in sides]
    return [_frame_row("measured", dates[0], dates[1:])] if any(dates) else []


def _frame_row(name: str, base: str, others: Iterable[str]) -> tuple[Cell, ...]:
    return text_cell(name), text_cell(base), *(text_cell(each) for each in others)


def _notes(lines: Sequence[Line], sides: Sequence[Side]) -> tuple[str, ...]:
    metrics = [metric for line in lines for metric in line.by_label.values()]
    notes = ["Overhead: positive is worse."]
    notes += [wording.LOST_NOTE] if any(metric.loss == "throughput" for metric in metrics) else []
    notes += [BY_VALUE_NOTE] if any(map(by_value, metrics)) else []
    notes += [FILE_TIME_NOTE] if any(side.measured_by == "mtime" for side in sides) else []
    notes += [f"Claim: {claim}." for claim in dict.fromkeys(metric.claim for metric in metrics) if claim]
    return tuple(notes)
