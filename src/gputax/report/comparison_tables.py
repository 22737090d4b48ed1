"""Tables of what was compared: every metric of a pair, and the layers of every waterfall; pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from gputax.report import wording
from gputax.report.grouping import Compared, Pair
from gputax.report.layers import DERIVED_NOTE, Step, Waterfall
from gputax.report.model import Cell, Column, Table, Tone, text_cell
from gputax.results.documents.comparison import ComparedMetric, Comparison
from gputax.text import milliseconds

METRIC_COLUMNS = (
    Column("cell", "cell"),
    Column("metric", "metric"),
    Column("base_value", "base", align="right"),
    Column("other_value", "other", align="right"),
    Column("overhead", "overhead", align="right", interval=True),
    Column("budget", "budget", align="right"),
    Column("verdict", "verdict"),
    Column("pairs", "pairs", align="right"),
    Column("workload", "workload", hidden=True),
    Column("scenario", "scenario", hidden=True),
    Column("batch_size", "batch", hidden=True),
    Column("base", "base", hidden=True),
    Column("other", "other", hidden=True),
    Column("device", "device", hidden=True),
    Column("unit", "unit", hidden=True),
    Column("overhead_ms", "overhead", "ms", interval=True, hidden=True),
    Column("budget_unit", "budget unit", hidden=True),
    Column("paired", "paired", hidden=True),
    Column("by_value", "by value", hidden=True),
    Column("spread", "spread", hidden=True),
    Column("pairs_needed", "pairs needed", hidden=True),
    Column("decides", "decides", hidden=True),
    Column("reason", "reason", hidden=True),
)
LAYER_COLUMNS = (
    Column("layer", "layer"),
    Column("parent", "on top of"),
    Column("own_cost", "its own cost", align="right", interval=True),
    Column("total_cost", "cost so far", align="right"),
    Column("how", "how", hidden=True),
    Column("cell", "cell", hidden=True),
    Column("metric", "metric", hidden=True),
    Column("device", "device", hidden=True),
)
CONSOLE_COLUMNS = (
    Column("cell", "cell"),
    Column("metric", "metric"),
    Column("base_value", "base", align="right"),
    Column("other_value", "other", align="right"),
    Column("overhead", "overhead (95 % interval)", align="right", short="overhead"),
    Column("budget", "budget", align="right"),
    Column("verdict", "verdict"),
    Column("pairs", "pairs", align="right", spare=1),
)
UNITS = {"samples/s": "/s"}
PAIRED_WORDS = "; in pairs it is the mean of the pairs' ratios."
UNPAIRED_NOTE = "Unpaired (weaker): the interval does not cover changes on the machine between the two runs."


def metrics_table(pair: Pair) -> Table:
    """Return every metric of one pair with its verdict."""
    titles = {"base_value": pair.base.label, "other_value": pair.other.label}
    columns = tuple(
        dataclasses.replace(column, title=titles.get(column.key, column.title)) for column in METRIC_COLUMNS
    )
    rows = tuple(_metric_row(row) for row in pair.rows)
    title = wording.on_device(pair.title, pair.devices)
    return Table("metrics", title, columns, rows, _notes(pair.rows), console=(_console_table(pair),))


def _console_table(pair: Pair) -> Table:
    """Return the same for a console: the only cell is in the title, and the interval has a column of its own."""
    cells = list(dict.fromkeys(row.cell for row in pair.rows))
    several = len(cells) > 1
    kind = _kind(pair.rows)
    what = f"{pair.title}, {kind}," if several else f"{pair.title}, {cells[0]}, {kind},"
    titles = {"base_value": pair.base.label, "other_value": pair.other.label}
    columns = tuple(
        dataclasses.replace(
            column, title=titles.get(column.key, column.title), hidden=column.key == "cell" and not several
        )
        for column in CONSOLE_COLUMNS
    )
    rows = tuple(_console_row(row) for row in pair.rows)
    title = wording.on_device(what, pair.devices)
    return Table("metrics", title, columns, rows, _console_notes(pair.rows), grouped=several)


def _kind(rows: Sequence[Compared]) -> str:
    """Return how often both sides were measured: in pairs, in repeats, or once each."""
    if all(row.metric.paired for row in rows):
        return "in pairs"
    kinds = {wording.pairs(row.metric) for row in rows}
    return kinds.pop() if len(kinds) == 1 else "unpaired (weaker)"


def _console_row(row: Compared) -> tuple[Cell, ...]:
    metric, cell, verdict = row.metric, overhead_cell(row.metric), verdict_cell(row.metric)
    if metric.by_value:
        # Below the verdict, where it needs no room of its own.
        below = metric.by_value.replace(" by", "\nby")
        verdict = dataclasses.replace(verdict, text=f"{verdict.text}\n{below}", detail="")
    return (
        text_cell(row.cell),
        text_cell(wording.metric_title(metric.metric)),
        Cell(with_unit(metric.base_value, metric.unit)),
        Cell(with_unit(metric.other_value, metric.unit)),
        dataclasses.replace(cell, text=cell.text.replace("(95 % CI ", "(").replace("(in one run ", "(")),
        Cell(wording.budget(metric)),
        verdict,
        dataclasses.replace(pairs_cell(metric), text="" if not metric.paired else wording.pairs(metric)),
    )


def with_unit(value: float | None, unit: str) -> str:
    """Return a value with its unit; a latency in the unit that reads well, the common rate as a plain number per s."""
    if unit == "ms":
        return milliseconds(value)
    return wording.DASH if wording.finite(value) is None else f"{wording.number(value)} {UNITS.get(unit, unit)}"


def _decided(rows: Sequence[Compared]) -> list[str]:
    """Return the bound that decided, which is one-sided and so not the printed interval: of the worst verdict."""
    decided = [
        row for verdict in ("fail", "pass") for row in rows if row.metric.decides and row.metric.verdict == verdict
    ]
    return [f"Decided by {wording.metric_title(row.metric.metric)}: {row.metric.reason}." for row in decided[:1]]


def _console_notes(rows: Sequence[Compared]) -> tuple[str, ...]:
    notes = _decided(rows) if len({row.cell for row in rows}) == 1 else []
    notes += ["Overhead: positive is worse" + (PAIRED_WORDS if any(row.metric.paired for row in rows) else ".")]
    notes += _formula_notes(rows)
    notes += _open_notes(rows)
    if any(_too_few(row.metric) for row in rows):
        notes.append(wording.short_floors_note())
    notes += [f"Claim: {claim}." for claim in dict.fromkeys(row.metric.claim for row in rows) if claim]
    return tuple(notes)


def _formula_notes(rows: Sequence[Compared]) -> list[str]:
    return [wording.LOST_NOTE] if any(row.metric.loss == "throughput" for row in rows) else []


def _open_notes(rows: Sequence[Compared]) -> list[str]:
    """Return what the intervals cover, and why rows without enough repeats are undecided, each reason once."""
    spreads = {row.metric.spread for row in rows}
    notes = [wording.WITHIN_NOTE] if wording.WITHIN in spreads else []
    notes += [wording.REPEATS_NOTE] if "between repeats" in spreads else []
    borrowed = dict.fromkeys(row.metric.spread_source for row in rows if row.metric.spread == "from another run")
    notes += [f"The interval has its spread from the repeats of {source}." for source in borrowed]
    named: dict[str, list[str]] = {}
    for row in rows:
        said = row.metric.spread == wording.WITHIN
        if row.metric.by_value and not said and not wording.evident(row.metric):
            named.setdefault(row.metric.reason, []).append(wording.metric_title(row.metric.metric))
    for reason, names in named.items():
        who = "" if len(names) == len(rows) else f" ({wording.joined(list(dict.fromkeys(names)))})"
        notes.append(f"Undecided{who}: {reason}.")
    return notes


def _metric_row(row: Compared) -> tuple[Cell, ...]:
    metric = row.metric
    return (
        text_cell(row.cell),
        Cell(wording.metric_title(metric.metric), metric.metric),
        _value_cell(metric.base_value, metric.unit),
        _value_cell(metric.other_value, metric.unit),
        overhead_cell(metric),
        Cell(wording.budget(metric), wording.finite(metric.budget)),
        verdict_cell(metric),
        pairs_cell(metric),
        text_cell(metric.workload),
        text_cell(metric.scenario),
        Cell("", metric.batch_size),
        text_cell(row.base.label),
        text_cell(row.other.label),
        text_cell("; ".join(row.devices)),
        text_cell(metric.unit),
        Cell("", wording.finite(metric.overhead_absolute), *wording.known_bounds(metric.ci95_absolute, "ms")),
        text_cell(metric.budget_unit or ""),
        Cell("", metric.paired),
        text_cell(metric.by_value or ""),
        text_cell(metric.spread or ""),
        Cell("", metric.pairs_needed),
        Cell("", metric.decides),
        text_cell(reason(metric)),
    )


def _value_cell(value: float | None, unit: str) -> Cell:
    text = wording.number(value)
    return Cell(text if text == wording.DASH else f"{text} {unit}", wording.finite(value))


def overhead_cell(metric: ComparedMetric) -> Cell:
    """Return the overhead with its interval; the value and its bounds are always in percent."""
    low, high = wording.known_bounds(metric.ci95_percent, "%")
    forced = metric.verdict == "not comparable"
    return Cell(
        wording.metric_overhead(metric),
        wording.finite(metric.overhead_percent),
        low,
        high,
        detail=wording.overhead_beside(metric),
        tone="muted" if forced else "",
    )


def pairs_cell(metric: ComparedMetric) -> Cell:
    """Return the pairs it rests on, and how many would decide it."""
    tone: Tone = "" if metric.paired else "muted"
    return Cell(wording.pairs(metric), metric.pairs, detail=wording.pairs_needed(metric), tone=tone)


def verdict_cell(metric: ComparedMetric) -> Cell:
    """Return the verdict with its mark, and the reason wherever the numbers beside it do not say it."""
    if wording.said(metric) == wording.NOT_JUDGED:
        return Cell(f"{wording.DASH} {wording.NOT_JUDGED}", metric.verdict, detail=reason(metric), tone="muted")
    detail = "" if metric.verdict == "pass" or wording.evident(metric) else reason(metric)
    return Cell(
        wording.marked(metric.verdict),
        metric.verdict,
        detail=metric.by_value or detail,
        tone=metric.verdict,
    )


def reason(metric: ComparedMetric) -> str:
    """Return why the verdict is what it is; for what is not comparable, all that differs."""
    return "; ".join(metric.differences) or metric.reason


def _notes(rows: Sequence[Compared]) -> tuple[str, ...]:
    notes = [wording.OVERHEAD_NOTE]
    if any(row.metric.paired and row.metric.overhead_percent is not None for row in rows):
        notes.append(wording.PAIRED_NOTE)
    if any(not row.metric.paired and row.metric.repeats is None for row in rows):
        notes.append(UNPAIRED_NOTE)
    notes += _formula_notes(rows)
    notes += _open_notes(rows)
    if any(_too_few(row.metric) for row in rows):
        notes.append(wording.floors_note())
    notes += [f"Budget of {source}." for source in _budget_sources(rows)]
    notes += [f"Claim: {claim}." for claim in dict.fromkeys(row.metric.claim for row in rows) if claim]
    return tuple(notes)


def _too_few(metric: ComparedMetric) -> bool:
    """Whether a number is missing because its percentile needs more samples."""
    return (metric.base_value is None or metric.other_value is None) and " needs " in metric.reason


def not_judged(comparison: Comparison) -> list[str]:
    """Return the figures that both sides have and no budget judges, a line for each cell."""
    by_cell: dict[tuple[str, str], list[str]] = {}
    for each in comparison.settings.get("not_judged", ()):
        values = f"{with_unit(each['base_value'], each['unit'])} and {with_unit(each['other_value'], each['unit'])}"
        by_cell.setdefault((each["cell"], each["other"]), []).append(f"{wording.metric_title(each['metric'])} {values}")
    return [f"Not judged: {cell}, {other}: {', '.join(texts)}." for (cell, other), texts in by_cell.items()]


def _budget_sources(rows: Sequence[Compared]) -> list[str]:
    """Return where each budget comes from, once for all metrics that share it."""
    metrics: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.metric.budget_source:
            key = (wording.budget(row.metric), row.metric.budget_source)
            metrics.setdefault(key, []).append(wording.metric_title(row.metric.metric))
    return [
        f"{wording.joined(list(dict.fromkeys(names)))}: {budget}, {source}"
        for (budget, source), names in metrics.items()
    ]


def layers_table(cell: str, metric: str, devices: Sequence[str], waterfalls: Sequence[Waterfall]) -> Table:
    """Return what each layer of one cell costs on its own and with those below it."""
    rows = tuple(
        (
            text_cell(step.label),
            text_cell(step.parent),
            Cell(
                wording.overhead(step.own_percent, step.own_ci95, "%"),
                step.own_percent,
                *wording.known_bounds(step.own_ci95, "%"),
                detail="" if how(step) == "paired" else how(step),
            ),
            Cell(f"{wording.signed(step.end_percent, 1)} %", step.end_percent),
            text_cell(how(step)),
            text_cell(cell),
            text_cell(metric),
            text_cell("; ".join(devices)),
        )
        for waterfall in waterfalls
        for step in waterfall.steps
    )
    derived = any(step.derived for waterfall in waterfalls for step in waterfall.steps)
    title = wording.on_device(f"{cell}, {wording.metric_title(metric)}, layer by layer,", devices)
    return Table("layers", title, LAYER_COLUMNS, rows, (DERIVED_NOTE,) if derived else ())


def how(step: Step) -> str:
    """Return what a step rests on."""
    if step.derived:
        return "derived"
    return "paired" if step.paired else "unpaired (weaker)"
