"""The advice as a versioned dictionary, for `--json` and for reports."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from gputax import __version__
from gputax.advise.advice import Advice, Considered
from gputax.advise.rows import Row, Triple, throughput_factor
from gputax.advise.wording import all_notices, answer, notes

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
        "rows": [_row(row) for row in advice.rows],
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


def _row(row: Row) -> dict[str, Any]:
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
