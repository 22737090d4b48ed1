"""The advice in words: the answer first, then what each model is, then all that must be read with it."""

from __future__ import annotations

import math

from gputax.advise.advice import Advice, Considered, Figure, Row, throughput_factor
from gputax.advise.models import Fitted, HeldOut

# Two throughputs that differ by less are the same to anyone who pays.
SAME_THROUGHPUT = 1.01
# Below this the loop around an inference costs nothing that a reader must know.
FACTOR_NOTED = 0.02
STAND_IN = "No GPU was measured: this holds for the stand-in only, and says nothing of a GPU."


def number(value: float | None) -> str:
    """Return four figures; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 999.95 else f"{value:#.4g}"


def between(low: float | None, high: float | None) -> str:
    """Return an interval, or say that there is none."""
    return "no interval" if low is None or high is None else f"{number(low)} to {number(high)}"


def given(advice: Advice) -> str:
    """Return what the source's own figures are called: what others published was not measured here."""
    return "published" if advice.table.published else "measured"


def answer(advice: Advice) -> str:
    """Say which technique and how many tenants, how sure it is, and what it costs."""
    sentences = [_answer(advice)]
    best = advice.best()
    if best is not None and best.basis != "measured":
        sentences.append(_measured_best(advice))
    cheapest = advice.cheapest()
    if (
        best is not None
        and cheapest is not None
        and advice.question.rate_per_s is None
        and cheapest.aggregate_per_s[0] > SAME_THROUGHPUT * best.aggregate_per_s[0]
    ):
        sentences.append(
            f"Cheapest per inference: {cheapest.title} with {_tenants(cheapest)}{_gain(advice, cheapest)}."
        )
    if advice.table.stand_in:
        sentences.append(STAND_IN)
    return " ".join(sentences)


def _answer(advice: Advice) -> str:
    asked = advice.question
    best = advice.best()
    if best is not None:
        return f"{best.title} with {_tenants(best)} meets {asked}: {_figures(best)}{_gain(advice, best)}."
    unsure = advice.likeliest()
    if unsure is not None:
        why = unsure.why_unsure or "the target lies within the interval, or there is none"
        likely = f"{unsure.title} with {_tenants(unsure)} may: {_figures(unsure)}"
        return f"Unsure: nothing surely meets {asked}. {likely}; {why}."
    nearest = min(advice.rows, key=_distance)
    return f"Nothing meets {asked}. Nearest: {nearest.title} with {_tenants(nearest)}: {_figures(nearest)}."


def _measured_best(advice: Advice) -> str:
    row = advice.best(measured=True)
    if row is None:
        return f"No {given(advice)} number of tenants surely meets it: measure this one before relying on it."
    return f"Of what was {given(advice)}: {row.title} with {_tenants(row)}, {_figures(row)}{_gain(advice, row)}."


def _distance(row: Row) -> float:
    """Return the worst miss of a row as a factor."""
    misses = [
        figure.limit / figure.value if figure.name == "rate" else figure.value / figure.limit for figure in row.figures
    ]
    return max(misses)


def _tenants(row: Row) -> str:
    count = "1 tenant" if row.tenants == 1 else f"{row.tenants} tenants"
    return count if row.basis == "measured" else f"{count} ({row.basis})"


def _figures(row: Row) -> str:
    return ", ".join(figure_text(figure) for figure in row.figures)


def figure_text(figure: Figure) -> str:
    """Return `p99 41.2 ms (39.9 to 42.6)`."""
    unit = "inferences/s each" if figure.name == "rate" else "ms"
    name = "" if figure.name == "rate" else f"{figure.name} "
    return f"{name}{number(figure.value)} {unit} ({between(figure.low, figure.high)})"


def _gain(advice: Advice, row: Row) -> str:
    text = f", {number(row.aggregate_per_s[0])} inferences/s together"
    if row.cost_per_million is None:
        return text
    return f"{text}, {cost_text(advice, row)} per million inferences"


def cost_text(advice: Advice, row: Row) -> str:
    """Return the cost with its currency, where one was named."""
    return f"{number(row.cost_per_million)} {advice.question.currency}".strip()


def model_lines(each: Considered) -> list[str]:
    """Describe one model: form, parameters with intervals, residuals, checks."""
    model = each.model
    lines = [
        f"{model.technique.title}: {model.fit.form.name}, {model.fit.form.formula}",
        f"  why: {model.choice}",
        f"  {', '.join(_parameters(model))}",
        f"  residuals (given over model): {_residuals(model)}",
    ]
    if model.series.entitlement:
        lines.insert(1, f"  a tenant may use: {model.series.entitlement}")
    if model.held_out:
        lines.append(f"  predicted, not fitted: {'; '.join(map(_held_out, model.held_out))}")
    for ratio in each.ratios:
        if ratio.tenants:
            bounds = ratio.uncertainty.around(ratio.log) or (None, None)
            shown = f"{number(math.exp(ratio.log))} ({between(*bounds)} for a new number of tenants)"
            lines.append(f"  {ratio.statistic} over mean: {shown}")
    notices = [*model.notices, *(notice for ratio in each.ratios for notice in ratio.notices)]
    lines += [f"  note: {notice.text}" for notice in notices]
    return lines


def _held_out(held: HeldOut) -> str:
    shown = f"{number(held.predicted_ms)} ms for {number(held.measured_ms)} ({held.error_percent:+.1f} %)"
    return f"{held.tenants} tenants {shown}"


def _parameters(model: Fitted) -> list[str]:
    texts = []
    for index, parameter in enumerate(model.fit.form.parameters):
        value, low, high = (None if each is None else parameter.shown(each) for each in model.fit.parameter(index))
        texts.append(f"{parameter.title} {number(value)} {parameter.unit}".rstrip() + f" ({between(low, high)})")
    return texts


def _residuals(model: Fitted) -> str:
    observed = model.fit.observed
    pairs = zip(observed, model.fit.residuals_percent, strict=True)
    return ", ".join(f"{each.tenants}: {round(percent, 2) + 0.0:+.2f} %" for each, percent in pairs)


def notes(advice: Advice) -> list[str]:
    """Return what must be read with the rows, each thing once."""
    asked = advice.question
    lines = [
        "Intervals are 95 %, for a new run. Yes: the whole interval meets the target; no: none of it; else unsure.",
        "interpolated, extrapolated: no run of so many tenants was fitted; whether their memory fits is not looked at.",
        "Tenants asked without a pause, as many as there are: with less load, latency is lower.",
    ]
    if asked.price_per_h is not None:
        served = "what the tenants need" if asked.rate_per_s is not None else "all that the tenants can do"
        lines.append(f"Cost: {asked.price_per_h:g} {asked.currency}".rstrip() + f" per device hour, over {served}.")
    for each in advice.considered:
        factor = throughput_factor(each.model)
        if abs(factor - 1.0) > FACTOR_NOTED:
            lines.append(
                f"{each.model.technique.title}: throughput is {factor:.3g} x tenants / mean latency, as measured "
                "(batch size, and the time between inferences)."
            )
        if each.model.series.capacity is not None:
            lines.append(f"{each.model.technique.title}: no room for more than {each.model.series.capacity} tenants.")
    lines += [f"No model of {each.technique.title}: {each.why}; next: {each.next_step}" for each in advice.refused]
    lines += [f"Claim: {advice.table.claim}."] if advice.table.claim else []
    lines += [f"Warning: {notice.text}" for notice in advice.table.notices]
    return list(dict.fromkeys([*lines, *(f"Source: {line}" for line in advice.table.source)]))
