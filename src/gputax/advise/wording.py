"""The advice as text: the answer first, then each model, then the notes."""

from __future__ import annotations

import math

from gputax import text
from gputax.advise.advice import Advice, Considered
from gputax.advise.models import Fitted, HeldOut
from gputax.advise.ratios import RATE
from gputax.advise.rows import Figure, Row, throughput_factor
from gputax.plan.notices import Notice
from gputax.text import digits

# Throughputs that differ by less than this count as equal.
SAME_THROUGHPUT = 1.01
# Below this, the cost of the loop around an inference is not worth a note.
FACTOR_NOTED = 0.02
STAND_IN = "No GPU was measured: this is valid only for the stand-in and says nothing about a GPU."


def number(value: float | None) -> str:
    """Return four digits, trailing zeros kept; a dash for None."""
    return text.number(value, padded=True)


def between(low: float | None, high: float | None) -> str:
    """Return an interval, or say that there is none."""
    return "no interval" if low is None or high is None else f"{number(low)} to {number(high)}"


def given(advice: Advice) -> str:
    """Return the word for the source's own figures: "published" if others measured them."""
    return "published" if advice.table.published else "measured"


def answer(advice: Advice) -> str:
    """Say which technique and how many tenants, how sure it is, and what it costs."""
    sentences = [_answer(advice)]
    best = advice.best()
    if best is not None and not best.was_measured:
        sentences.append(_measured_best(advice))
    cheapest = advice.cheapest()
    if (
        best is not None
        and cheapest is not None
        and advice.question.rate_per_s is None
        and cheapest.per_s > SAME_THROUGHPUT * best.per_s
    ):
        sentences.append(
            f"Cheapest per inference: {cheapest.title} with {_tenants(cheapest)}{_gain(advice, cheapest)}."
        )
    sentences += _starved(advice)
    if advice.question.up_to is not None:
        named = {row.technique for row in advice.named}
        sentences += [
            no_room(each)
            for each in advice.considered
            if each.model.technique.name in named and advice.question.up_to > _capacity(each)
        ]
    if advice.table.stand_in:
        sentences.append(STAND_IN)
    return " ".join(sentences)


def _answer(advice: Advice) -> str:
    asked = advice.question
    best = advice.best()
    if best is not None:
        by = "" if best.has_interval else " by its value, without an interval"
        return f"{best.title} with {_tenants(best)} meets {asked}{by}: {_figures(advice, best)}{_gain(advice, best)}."
    unsure = advice.likeliest()
    if unsure is not None:
        likely = f"{unsure.title} with {_tenants(unsure)} may: {_figures(advice, unsure)}"
        return f"Unsure: nothing certainly meets {asked}. {likely}; {unsure.why_unsure}."
    nearest = advice.nearest()
    return f"Nothing meets {asked}. Nearest: {nearest.title} with {_tenants(nearest)}: {_figures(advice, nearest)}."


def _measured_best(advice: Advice) -> str:
    row = advice.best(measured=True)
    if row is None:
        return f"No {given(advice)} number of tenants certainly meets it: measure this one before relying on it."
    shown = f"{_figures(advice, row)}{_gain(advice, row)}"
    return f"Of what was {given(advice)}: {row.title} with {_tenants(row)}, {shown}."


def _starved(advice: Advice) -> list[str]:
    """For each technique, name the fewest tenants whose overall mean meets a target that the worst tenant misses."""
    found = []
    for each in advice.considered:
        for row in each.rows:
            mean = next((figure for figure in row.figures if figure.name == "mean"), None)
            if mean is None or row.measured_ms is None or mean.measured is None:
                continue
            if mean.holds(row.measured_ms) and not mean.holds(mean.measured):
                found.append(
                    f"{row.title} with {_tenants(row)}: the overall mean, {number(row.measured_ms)} ms, would meet it, "
                    f"but the worst tenant's is {number(mean.measured)} ms."
                )
                break
    return found


def _tenants(row: Row) -> str:
    count = text.counted(row.tenants, "tenant")
    basis = "not used in the fit" if row.basis == "left out" else row.basis
    return count if row.basis == "measured" else f"{count} ({basis})"


def _figures(advice: Advice, row: Row) -> str:
    return ", ".join(figure_text(figure, given(advice), row.tenants) for figure in row.figures)


def figure_text(figure: Figure, given: str, tenants: int) -> str:
    """Return `measured p99 41.2 ms (model 41.0, 39.9 to 42.6)`, or `model p99 41.0 ms (39.9 to 42.6)`."""
    of_worst = " of the worst tenant" if figure.of_worst and tenants > 1 else ""
    bounds = between(figure.low, figure.high)
    if figure.name == RATE:
        return _rate_text(figure, given, " of the slowest tenant" if of_worst else " each", bounds)
    name = f"{figure.name}{of_worst}"
    if figure.measured is None:
        return f"model {name} {number(figure.value)} ms ({bounds})"
    return f"{given} {name} {number(figure.measured)} ms (model {number(figure.value)}, {bounds})"


def _rate_text(figure: Figure, given: str, whose: str, bounds: str) -> str:
    if figure.measured is None:
        return f"model {number(figure.value)} inferences/s{whose} ({bounds})"
    measured = f"{number(figure.measured)} inferences/s{whose}{_by(given)}"
    return f"{measured} (model {number(figure.value)}, {bounds})"


def _by(given: str) -> str:
    """Return the basis of a throughput: the published table has only means."""
    return " by the published mean" if given == "published" else " as measured"


def _gain(advice: Advice, row: Row) -> str:
    by = " by the model" if row.measured_per_s is None else _by(given(advice))
    together = f", {number(row.per_s)} inferences/s in total{by}"
    if row.cost_per_million is None:
        return together
    return f"{together}, {cost_text(advice, row)} per million inferences"


def _capacity(each: Considered) -> float:
    return math.inf if each.model.series.capacity is None else each.model.series.capacity


def no_room(each: Considered) -> str:
    """Return the most tenants that fit, and why; empty if the source does not say."""
    series = each.model.series
    if series.capacity is None:
        return ""
    why = f" ({series.capacity_why})" if series.capacity_why else ""
    return f"{series.technique.title}: no room for more than {series.capacity} tenants{why}."


def cost_text(advice: Advice, row: Row) -> str:
    """Return the cost with its currency, if one was given."""
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
    lines += _worst_over_all(each)
    lines += [f"  note: {notice.text}" for notice in all_notices(each)]
    return lines


def all_notices(each: Considered) -> list[Notice]:
    """Return the notices of the model and of its ratios."""
    of_ratios = (notice for ratio in each.ratios for notice in ratio.notices)
    return [*each.model.notices, *of_ratios, *(notice for uneven in each.uneven for notice in uneven.notices)]


def _worst_over_all(each: Considered) -> list[str]:
    lines = []
    for uneven in each.scales.uneven:
        if uneven.known:
            shown = ", ".join(
                f"{count}: {math.exp(uneven.at(count).at_worst):.3f}" for count in sorted(uneven.by_count)
            )
            lines.append(f"  {uneven.statistic} of the worst tenant over that of all: {shown}")
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
    """Return the notes for the rows, each once."""
    asked = advice.question
    lines = [
        "Intervals are 95 %, for a new run. Yes: the whole interval meets the target; no: none of it; else unsure.",
        "interpolated, extrapolated: no run had this many tenants; whether their memory fits is known only if it says "
        "no room.",
        "All tenants sent requests without a pause; with less load, latency is lower.",
    ]
    if any(uneven.known for each in advice.considered for uneven in each.uneven):
        lines.append("Latency and rate are those of each run's worst tenant: an average can hide one that is starved.")
    if any(row.basis == "left out" for row in advice.rows):
        lines.append(f"left out: {given(advice)}, but not used in the fit; the model and the figure must both meet it.")
    if not all(row.has_interval for row in advice.rows):
        lines.append("no interval: the uncertainty of the model is unknown, so only the values were judged.")
    if advice.table.published:
        lines.append("The source has only means: together/s is tenants / mean, since tenants never pause.")
    if asked.price_per_h is not None:
        served = "what the tenants need" if asked.rate_per_s is not None else "the most that the tenants can do"
        lines.append(f"Cost: {asked.price_per_h:g} {asked.currency}".rstrip() + f" per device hour, over {served}.")
    for each in advice.considered:
        factor = throughput_factor(each.model)
        if abs(factor - 1.0) > FACTOR_NOTED:
            lines.append(
                f"{each.model.technique.title}: throughput is {digits(factor, 3)} x tenants / mean latency, "
                "as measured "
                "(batch size, and the time between inferences)."
            )
        lines += [room] if (room := no_room(each)) else []
    lines += [f"No model of {each.technique.title}: {each.why}; next: {each.next_step}" for each in advice.refused]
    lines += [f"Claim: {advice.table.claim}."] if advice.table.claim else []
    lines += [f"Warning: {notice.text}" for notice in advice.table.notices]
    return list(dict.fromkeys([*lines, *(f"Source: {line}" for line in advice.table.source)]))
