"""The answer: each layer by its typical cost, with the metric that decides its verdict beside it; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gputax.plan.workloads import OPERATIONS
from gputax.report import wording
from gputax.report.comparison_tables import metrics_table, overhead_cell, pairs_cell, reason, verdict_cell
from gputax.report.grouping import Compared, Pair
from gputax.report.model import Cell, Column, Fact, Table, text_cell
from gputax.report.side_by_side import side_by_side
from gputax.results.documents.comparison import Verdict
from gputax.results.importers.source import UNNAMED
from gputax.stats.repeats import FEWEST_REPEATS

# The worst first: one metric over its budget fails the layer, one that cannot be judged leaves it open.
SEVERITY: tuple[Verdict, ...] = ("fail", "not comparable", "inconclusive", "pass")
# More rows than this do not answer anything at a glance.
GLANCE_ROWS = 8

LAYER_COLUMNS = (
    Column("layer", "layer"),
    Column("base", "against", spare=1),
    Column("verdict", "verdict"),
    Column("overhead", "cost", align="right", interval=True),
    Column("budget", "budget", align="right"),
    Column("pairs", "pairs", align="right", spare=2),
    Column("decided_by", "decided by"),
    Column("device", "device", hidden=True),
)


# What a user feels comes first: a model before single calls of the driver, one request before a batch.
TYPICAL_OPERATION = "micro:operation"
SCENARIO_ORDER = ("single-stream", "server", "multi-stream", "offline", "saturate")
LATENCY_ORDER = ("latency_p50", "latency_mean", "latency_p90", "latency_p95", "latency_p99", "throughput")
RATE_ORDER = ("throughput", "latency_mean", *LATENCY_ORDER)
MetricKey = tuple[str, str, int | None, str]


@dataclass(frozen=True)
class LayerAnswer:
    """What one pair of sides comes to."""

    pair: Pair
    verdict: Verdict
    """That of the decisive metric: what is typical may pass while something else fails."""
    decisive: Compared
    """The metric that decides: the worst verdict, and of those the nearest to or furthest over its budget."""
    typical: Compared
    """The metric that represents the layer: what its user notices, and the same one in every layer that has it."""

    @property
    def hidden(self) -> bool:
        """Whether something that is not typical has a worse verdict."""
        return self.verdict != self.typical.metric.verdict


def layer_answers(pairs: Sequence[Pair]) -> list[LayerAnswer]:
    """Return the answer of every pair, by one metric for all of them as far as they share one.

    A percentile that was refused for want of samples decides nothing unless a budget names it: `gputax duet` and
    `gputax compare` exit by the same rule. It is said beside the answer.
    """
    known = [{_key(row): row for row in reversed(pair.rows) if _has_number(row)} for pair in pairs]
    keys = list(dict.fromkeys(key for rows in known for key in reversed(rows)))
    keys.sort(key=lambda key: (-sum(key in rows for rows in known), _felt(key)))
    answers = []
    for pair, rows in zip(pairs, known, strict=True):
        judged = [row for row in pair.rows if row.metric.decides] or list(pair.rows)
        decisive = min(judged, key=lambda row: (SEVERITY.index(row.metric.verdict), -_share_of_budget(row)))
        typical = next((rows[key] for key in keys if key in rows), decisive)
        answers.append(LayerAnswer(pair, decisive.metric.verdict, decisive, typical))
    return answers


def _key(row: Compared) -> MetricKey:
    metric = row.metric
    return metric.workload, metric.scenario, metric.batch_size, metric.metric


def _has_number(row: Compared) -> bool:
    return row.metric.decides and wording.finite(row.metric.overhead_percent) is not None


def _felt(key: MetricKey) -> tuple[int, ...]:
    """Return the rank of a metric among those that may represent a layer, the best first."""
    workload, scenario, batch_size, metric = key
    by_workload = 0 if workload not in OPERATIONS else 1 if workload == TYPICAL_OPERATION else 2
    order = RATE_ORDER if scenario in ("offline", "saturate") else LATENCY_ORDER
    return by_workload, _place(scenario, SCENARIO_ORDER), _place(metric, order), batch_size or 0


def _place(name: str, order: Sequence[str]) -> int:
    return order.index(name) if name in order else len(order)


def _share_of_budget(row: Compared) -> float:
    """Return how much of its budget the metric uses up, in whatever unit the budget has."""
    metric = row.metric
    cost = metric.overhead_absolute if metric.budget_unit == "ms" else metric.overhead_percent
    cost, budget = wording.finite(cost), wording.finite(metric.budget)
    return -math.inf if cost is None or not budget else cost / budget


def answer_sentence(answers: Sequence[LayerAnswer]) -> Fact:
    """Return the answer in words, with the tone of the worst verdict."""
    worst = min((answer.verdict for answer in answers), key=SEVERITY.index)
    if len(answers) == 1:
        return Fact(_single(answers[0]), worst)
    name_device = several_devices(answers)
    clauses = []
    for verdict in SEVERITY:
        for by_value in ("over budget by value", "within budget by value", None):
            chosen = [answer for answer in answers if _said(answer) == (verdict, by_value)]
            if chosen:
                clauses.append(_clause(chosen, verdict, name_device) + (f", {by_value}" if by_value else ""))
    clauses += [f"{_label(answer, name_device)}, worst: {worst_words(answer)}" for answer in answers if answer.hidden]
    return Fact("; ".join(clauses) + ".", worst)


def _said(answer: LayerAnswer) -> tuple[Verdict, str | None]:
    return answer.typical.metric.verdict, answer.typical.metric.by_value


def _clause(answers: list[LayerAnswer], verdict: Verdict, name_device: bool) -> str:
    one = len(answers) == 1
    budget = f"its budget of {wording.budget(answers[0].typical.metric)}" if one else "their budgets"
    words: dict[Verdict, str] = {
        "pass": f"is within {budget}" if one else f"are within {budget}",
        "fail": f"is over {budget}" if one else f"are over {budget}",
        "inconclusive": "is undecided" if one else "are undecided",
        "not comparable": "cannot be compared",
    }
    return f"{wording.joined([_named(answer, name_device) for answer in answers])} {words[verdict]}"


def _named(answer: LayerAnswer, name_device: bool) -> str:
    name = _label(answer, name_device)
    cost = wording.short_overhead(answer.typical.metric)
    known = cost != wording.DASH and answer.typical.metric.verdict != "not comparable"
    return f"{name} ({cost})" if known else name


def _label(answer: LayerAnswer, name_device: bool) -> str:
    label = answer.pair.other.label
    return wording.on_device(label, answer.pair.devices) if name_device else label


def worst_words(answer: LayerAnswer) -> str:
    """Return the decisive metric with its cost and its verdict, e.g. `p50 latency of X +41 % (budget 5 %), ✗ fail`."""
    metric = answer.decisive.metric
    cost = wording.short_overhead(metric)
    if cost == wording.DASH:
        return f"{metric_words(answer.decisive)}, {wording.marked(metric.verdict)}: {metric.reason}"
    return f"{metric_words(answer.decisive)} {cost} (budget {wording.budget(metric)}), {wording.marked(metric.verdict)}"


def metric_words(row: Compared) -> str:
    """Return a metric with its cell; of a driver's operation without the scenario, which is the same for all."""
    cell = row.metric.workload if row.metric.workload in OPERATIONS else row.cell
    title = wording.metric_title(row.metric.metric)
    return title if cell == UNNAMED else f"{title} of {cell}"


def several_devices(answers: Sequence[LayerAnswer]) -> bool:
    """Whether each number must name its own device, because the title names more than one."""
    return len({answer.pair.devices for answer in answers}) > 1


def _single(answer: LayerAnswer) -> str:
    metric, pair = answer.typical.metric, answer.pair
    cost, budget = wording.metric_overhead(metric), wording.budget(metric)
    measure = f"{wording.metric_title(metric.metric)} of {answer.typical.cell}"
    head = f"{pair.other.label} costs {cost} over {pair.base.label} in {measure}"
    also = f" Worst: {worst_words(answer)}." if answer.hidden else ""
    match metric.verdict:
        case "pass":
            return f"{head}: within its budget of {budget}{_not_judged(pair)}.{also}"
        case "fail":
            return f"{head}: over its budget of {budget}."
        case "not comparable":
            return f"{pair.other.label} cannot be compared with {pair.base.label}: {reason(metric)}."
    if cost == wording.DASH:
        return f"Undecided what {pair.other.label} costs over {pair.base.label}: {metric.reason}."
    side = {"over budget by value": "over", "within budget by value": "within"}.get(metric.by_value or "")
    against = (
        f"{side} its budget of {budget} by value, but undecided"
        if side
        else f"undecided against its budget of {budget}"
    )
    return f"{head}: {against}{_still_needed(answer.typical)}.{also}"


def _not_judged(pair: Pair) -> str:
    """Return what a pass does not cover."""
    names = dict.fromkeys(
        wording.metric_title(row.metric.metric) for row in pair.rows if wording.said(row.metric) == wording.NOT_JUDGED
    )
    return f"; {wording.joined(list(names))} could not be judged" if names else ""


def _still_needed(row: Compared) -> str:
    needed, measured = row.metric.pairs_needed, row.metric.pairs
    repeats = row.metric.repeats
    if not row.metric.paired and repeats is not None and min(repeats) < FEWEST_REPEATS:
        return f"; measured {'once' if repeats == (1, 1) else 'too seldom'}: `gputax run --repeats 5` can decide"
    if not row.metric.paired:
        return "; measured unpaired (weaker): `gputax duet` can decide"
    if row.metric.seconds_needed is not None:
        return f"; {wording.pairs_needed(row.metric)}"
    if needed is None or measured is None:
        return ""
    return f"; about {needed:,} pairs would decide, {measured:,} are measured"


def answer_table(answers: Sequence[LayerAnswer]) -> Table:
    """Return the answer as one table: metric by metric for a short comparison, else layer by layer."""
    short = all(len(answer.pair.rows) <= GLANCE_ROWS for answer in answers)
    if len(answers) == 1 and short:
        return metrics_table(answers[0].pair)
    together = side_by_side([answer.pair for answer in answers]) if short else None
    if together is not None:
        return together
    devices = [device for answer in answers for device in answer.pair.devices]
    return Table(
        "answer",
        wording.on_device("Each layer by the metric that decides it,", devices),
        tuple(replace(column, hidden=column.hidden and not several_devices(answers)) for column in LAYER_COLUMNS),
        tuple(_layer_row(answer) for answer in answers),
        _layer_notes(answers),
    )


def _layer_row(answer: LayerAnswer) -> tuple[Cell, ...]:
    row, metric = answer.decisive, answer.decisive.metric
    decided_by = f"{wording.metric_title(metric.metric)}, {row.cell}"
    return (
        text_cell(answer.pair.other.label),
        text_cell(answer.pair.base.label),
        verdict_cell(metric),
        overhead_cell(metric),
        Cell(wording.budget(metric), wording.finite(metric.budget)),
        pairs_cell(metric),
        text_cell(decided_by, detail=_tally(answer.pair)),
        text_cell("; ".join(answer.pair.devices)),
    )


def _tally(pair: Pair) -> str:
    said = [wording.said(row.metric) for row in pair.rows]
    words = (*(wording.WORDS[verdict] for verdict in SEVERITY), wording.NOT_JUDGED)
    tally = ", ".join(f"{said.count(word)} {word}" for word in words if word in said)
    return f"of {wording.counted(len(pair.rows), 'metric')}: {tally}" if len(pair.rows) > 1 else ""


def _layer_notes(answers: Sequence[LayerAnswer]) -> tuple[str, ...]:
    notes = ["A layer fails if any metric fails; the table below lists all of them."]
    if any(not answer.decisive.metric.paired and answer.decisive.metric.repeats is None for answer in answers):
        notes.append("Unpaired (weaker): changes between the runs are part of the number.")
    return tuple(notes)
