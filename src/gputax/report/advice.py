"""The advice of `gputax advise`: a versioned dictionary for `--json`, and the table of rows that decide it; pure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection
from typing import Any, TextIO

from gputax import __version__
from gputax.advise.advice import Advice, Considered
from gputax.advise.rows import Row, Triple, throughput_factor
from gputax.advise.wording import all_notices, answer, between, cost_text, given, model_lines, notes, number
from gputax.report.exporters.console_text import Screen
from gputax.report.model import Cell, Column, Table, Tone, text_cell
from gputax.text import plain

ADVICE_SCHEMA_VERSION = 1


def advice_data(advice: Advice) -> dict[str, Any]:
    """Return the whole advice; missing numbers are null."""
    best = advice.best() or advice.likeliest()
    return {
        "schema_version": ADVICE_SCHEMA_VERSION,
        "kind": "advice",
        "gputax_version": __version__,
        "title": advice.table.title,
        "device_label": advice.table.device_label,
        "published": advice.table.published,
        "stand_in": advice.table.stand_in,
        "source": list(advice.table.source),
        "claim": advice.table.claim,
        "question": dataclasses.asdict(advice.question),
        "answer": answer(advice),
        "meets": advice.meets,
        "best": None if best is None else {"technique": best.technique, "tenants": best.tenants},
        "rows": [_row_record(row) for row in advice.rows],
        "models": [_model(each) for each in advice.considered],
        "refused": [
            {"technique": each.technique.name, "why": each.why, "next": each.next_step} for each in advice.refused
        ],
        "warnings": [notice.to_dict() for notice in advice.table.notices],
        "notes": notes(advice),
    }


def _triple(values: Triple) -> dict[str, Any]:
    value, low, high = values
    return {"value": value, "ci95": None if low is None or high is None else [low, high]}


def _row_record(row: Row) -> dict[str, Any]:
    return {
        "technique": row.technique,
        "tenants": row.tenants,
        "basis": row.basis,
        "mean_ms": _triple(row.mean_ms),
        "measured_mean_ms": row.measured_ms,
        "figures": [
            {
                "name": figure.name,
                "unit": "1/s" if figure.name == "rate" else "ms",
                **_triple((figure.value, figure.low, figure.high)),
                "measured": figure.measured,
                "of_worst_tenant": figure.of_worst,
                "limit": figure.limit,
                "meets": figure.meets,
            }
            for figure in row.figures
        ],
        "aggregate_per_s": _triple(row.aggregate_per_s),
        "measured_per_s": row.measured_per_s,
        "cost_per_million": row.cost_per_million,
        "meets": row.meets,
        "judged_by": "interval" if row.has_interval else "value, no interval",
        "why_unsure": row.why_unsure,
    }


def _model(each: Considered) -> dict[str, Any]:
    model = each.model
    parameters = {}
    for index, parameter in enumerate(model.fit.form.parameters):
        value, *bounds = model.fit.parameter(index)
        low, high = (None if bound is None else parameter.shown(bound) for bound in bounds)
        parameters[parameter.name] = _triple((parameter.shown(value), low, high))
    return {
        "technique": model.technique.name,
        "title": model.technique.title,
        "entitlement": model.series.entitlement,
        "capacity": model.series.capacity,
        "capacity_why": model.series.capacity_why,
        "form": model.fit.form.name,
        "formula": model.fit.form.formula,
        "choice": model.choice,
        "parameters": parameters,
        "points": [
            {
                "tenants": point.tenants,
                "runs": point.runs,
                "mean_ms": math.exp(point.log_ms),
                "residual_percent": percent,
            }
            for point, percent in zip(model.fit.observed, model.fit.residuals_percent, strict=True)
        ],
        "lack_of_fit_p": model.fit.lack_p,
        "form_checked": model.form_checked,
        "held_out": [{**dataclasses.asdict(held), "error_percent": held.error_percent} for held in model.held_out],
        "throughput_factor": throughput_factor(model),
        "ratios": [
            {"statistic": ratio.statistic, "value": math.exp(ratio.log), "tenants": list(ratio.tenants)}
            for ratio in each.ratios
        ],
        "worst_tenant_over_all": {
            uneven.statistic: {str(count): math.exp(uneven.at(count).at_worst) for count in sorted(uneven.by_count)}
            for uneven in each.uneven
        },
        "warnings": [notice.to_dict() for notice in all_notices(each)],
    }


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
