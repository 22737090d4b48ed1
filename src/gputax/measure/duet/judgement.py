"""Turn the pairs of a duet into judged metrics; pure."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from gputax.measure.duet.pairs import INTERRUPTED, DuetData
from gputax.plan.budgets import Budget, unused_budgets
from gputax.plan.metrics import METRICS, Metric, paired_metrics, pooled_metrics
from gputax.plan.notices import Notice
from gputax.results.documents.base import WarningRecord
from gputax.results.documents.comparison import ComparedMetric, PairSeries, Resolution
from gputax.stats.levels import restart_estimate
from gputax.stats.pairs import PairedEstimate, paired_estimate
from gputax.stats.tails import refusal, tail_estimate
from gputax.stats.verdicts import Judgement, differs, judge, judge_absolute

MAX_SERIES_POINTS = 400
# A slot's p90 needs ten queries; with fewer it is the largest value.
LEAST_QUERIES_FOR_SLOT_P90 = 10
RESTART_P = 0.01
# The last restart may have time for only one pair, whose noise would then count as the restart's.
FEWEST_PAIRS_OF_A_RESTART = 5
# A t interval from two values is uselessly wide (seen: -96 to +4322 %).
FEWEST_RESTARTS_FOR_AN_INTERVAL = 3
MEDIAN_IS_MEAN = "a slot has only one or two requests, so its median is its mean"


@dataclass(frozen=True)
class Judged:
    """All metrics of one duet."""

    metrics: tuple[ComparedMetric, ...]
    series: PairSeries
    notices: tuple[Notice, ...]


@dataclass(frozen=True)
class Question:
    """What is compared, with which budgets."""

    workload: str
    scenario: str
    batch: int
    base: str
    other: str
    budgets: dict[str, Budget]
    claim: str
    named: frozenset[str] = frozenset()
    """The metrics named by a budget: with too few samples they are inconclusive instead of omitted."""
    bandwidth: str = ""
    """The metric that replaces the mean if a run moves `bytes_per_run`: the same time, in GB/s."""
    bytes_per_run: int = 0
    doubt: str = ""
    """Why the difference may not come from the layer; then the verdict is inconclusive."""


def judge_duet(question: Question, data: DuetData) -> Judged:
    """Return every metric of the scenario with its verdict."""
    rows = []
    for name in _paired_metrics(question):
        why_not = _slot_refusal(name, data)
        if not why_not:
            rows.append(_paired_row(question, METRICS[name], data))
        elif why_not != MEDIAN_IS_MEAN or name in question.named:
            rows.append(_refused_row(question, METRICS[name], data, why_not))
    rows += [_tail_row(question, METRICS[name], data) for name in pooled_metrics(question.scenario)]
    named = {name: question.budgets[name] for name in question.named}
    notices = [*_notices(data), *unused_budgets(named, (row.metric for row in rows))]
    return Judged(tuple(rows), _series(question, data), tuple(notices))


def _paired_metrics(question: Question) -> tuple[str, ...]:
    names = paired_metrics(question.scenario)
    return (question.bandwidth, *names[1:]) if question.bandwidth else names


def resolution(data: DuetData) -> Resolution:
    """Return the result of the A/A control."""
    estimate = _estimate(data, METRICS["latency_mean"])
    low, high = estimate.ci95_percent
    return Resolution(
        half_width_percent=estimate.half_width_percent,
        ci95_percent=(_finite(low), _finite(high)),
        pairs=estimate.pairs,
        seconds=data.seconds,
        contains_zero=not differs(estimate),
    )


def slot_value(latency_ns: np.ndarray, metric: Metric) -> float:
    """Return the metric of one half of a pair: a time in ns (throughput: ns per sample)."""
    if metric.percentile is None:
        return float(latency_ns.mean())
    return float(np.quantile(latency_ns, metric.percentile))


def _slot_refusal(name: str, data: DuetData) -> str:
    """Return why the slots are too short for the metric, "" if they are not."""
    fewest = min(min(pair.a_ns.size, pair.b_ns.size) for pair in data.pairs)
    if name == "latency_p90" and fewest < LEAST_QUERIES_FOR_SLOT_P90:
        return f"p90 needs {LEAST_QUERIES_FOR_SLOT_P90} queries in each slot, the shortest has {fewest}"
    return MEDIAN_IS_MEAN if name == "latency_p50" and fewest <= 2 else ""


def _estimate(data: DuetData, metric: Metric) -> PairedEstimate:
    # Throughput is stored as time per sample, so lower is better for every metric here.
    return paired_estimate(
        [slot_value(pair.a_ns, metric) for pair in data.pairs],
        [slot_value(pair.b_ns, metric) for pair in data.pairs],
        b_first=[pair.b_first for pair in data.pairs],
        time_s=[pair.time_s for pair in data.pairs],
    )


def _paired_row(question: Question, metric: Metric, data: DuetData) -> ComparedMetric:
    estimate = _estimate(data, metric)
    budget = question.budgets[metric.name]
    judgement = judge(estimate, budget.value) if budget.unit == "%" else _wrong_unit(metric, budget)
    a = float(np.mean([slot_value(pair.a_ns, metric) for pair in data.pairs]))
    b = float(np.mean([slot_value(pair.b_ns, metric) for pair in data.pairs]))
    low, high = estimate.ci95_percent
    return ComparedMetric(
        **_common(question, metric, budget, judgement),
        base_value=_in_unit(a, metric, question),
        other_value=_in_unit(b, metric, question),
        overhead_percent=estimate.overhead_percent,
        ci95_percent=(_finite(low), _finite(high)),
        pairs=estimate.pairs,
        warnings=tuple(WarningRecord(code="pairs", text=text) for text in estimate.notices),
    )


def _tail_row(question: Question, metric: Metric, data: DuetData) -> ComparedMetric:
    assert metric.percentile is not None
    a_blocks, b_blocks = [pair.a_ns for pair in data.pairs], [pair.b_ns for pair in data.pairs]
    budget = question.budgets[metric.name].at(_typical_ms(data))
    why_not = refusal(a_blocks, b_blocks, metric.percentile)
    if why_not:
        return _refused_row(question, metric, data, why_not)
    tail = tail_estimate(a_blocks, b_blocks, metric.percentile)
    percent = budget.unit == "%"
    judgement = judge(tail.overhead, budget.value) if percent else judge_absolute(tail.difference, budget.value)
    return ComparedMetric(
        **_common(question, metric, budget, judgement),
        base_value=tail.a_ms,
        other_value=tail.b_ms,
        overhead_percent=tail.overhead.value,
        ci95_percent=(_finite(tail.overhead.ci95[0]), _finite(tail.overhead.ci95[1])),
        overhead_absolute=tail.difference.value,
        ci95_absolute=(_finite(tail.difference.ci95[0]), _finite(tail.difference.ci95[1])),
        pairs=tail.pairs,
    )


def _typical_ms(data: DuetData) -> float:
    """Return the median request of the base side: it decides which budget fits the size."""
    return float(np.median(np.concatenate([pair.a_ns for pair in data.pairs]))) / 1e6


def _refused_row(question: Question, metric: Metric, data: DuetData, why: str) -> ComparedMetric:
    return ComparedMetric(
        **_common(
            question, metric, question.budgets[metric.name].at(_typical_ms(data)), Judgement("inconclusive", why)
        ),
        base_value=None,
        other_value=None,
        overhead_percent=None,
        pairs=len(data.pairs),
        decides=metric.name in question.named,
    )


def _common(question: Question, metric: Metric, budget: Budget, judgement: Judgement) -> dict[str, Any]:
    if question.doubt and judgement.verdict in ("pass", "fail"):
        reason = f"{question.doubt}; otherwise this would be a {judgement.verdict}: {judgement.reason}"
        judgement = Judgement("inconclusive", reason)
    return {
        "workload": question.workload,
        "scenario": question.scenario,
        "batch_size": question.batch,
        "metric": metric.name,
        "unit": metric.unit,
        "base": question.base,
        "other": question.other,
        "budget": budget.value,
        "budget_unit": budget.unit,
        "budget_source": budget.source,
        "verdict": judgement.verdict,
        "reason": judgement.reason,
        "paired": True,
        "pairs_needed": judgement.pairs_needed,
        "claim": question.claim,
    }


def _wrong_unit(metric: Metric, budget: Budget) -> Judgement:
    return Judgement("inconclusive", f"a budget in {budget.unit} cannot judge {metric.title} pair by pair")


def _in_unit(value_ns: float, metric: Metric, question: Question) -> float:
    """Return ns as ms, or as samples per second; a closed loop's value is a batch's time, offline's a sample's."""
    if metric.unit == "GB/s":
        return question.bytes_per_run / value_ns
    if metric.name != "throughput":
        return value_ns / 1e6
    return (1 if question.scenario == "offline" else question.batch) * 1e9 / value_ns


def _series(question: Question, data: DuetData) -> PairSeries:
    step = max(1, math.ceil(len(data.pairs) / MAX_SERIES_POINTS))
    shown = data.pairs[::step]
    start_s = data.pairs[0].time_s
    return PairSeries(
        workload=question.workload,
        scenario=question.scenario,
        metric=question.bandwidth or ("latency_mean" if question.scenario != "offline" else "throughput"),
        time_s=tuple(pair.time_s - start_s for pair in shown),
        overhead_percent=tuple(100.0 * (pair.b_ns.mean() / pair.a_ns.mean() - 1.0) for pair in shown),
        b_first=tuple(pair.b_first for pair in shown),
    )


def _notices(data: DuetData) -> list[Notice]:
    notices = []
    if data.lost_pairs:
        text = f"{len(data.lost_pairs)} pairs were dropped because a worker failed during the pair: "
        notices.append(Notice("lost-pairs", text + data.lost_pairs[-1], float(len(data.lost_pairs))))
    if data.stopped_because == INTERRUPTED:
        text = (
            f"interrupted after {len(data.pairs)} pairs in {data.seconds:.0f} s: the interval is as wide as it was then"
        )
        notices.append(Notice(INTERRUPTED, text))
    differing = _restarts_differ(data)
    return [*notices, differing] if differing else notices


def _restarts_differ(data: DuetData) -> Notice | None:
    """Warn if restarts differ from each other by more than the noise within them."""
    sizes = Counter(pair.restart for pair in data.pairs)
    pairs = [pair for pair in data.pairs if sizes[pair.restart] >= FEWEST_PAIRS_OF_A_RESTART]
    labels = [pair.restart for pair in pairs]
    if len(set(labels)) < 2:
        return None
    found = restart_estimate([pair.a_ns.mean() for pair in pairs], [pair.b_ns.mean() for pair in pairs], labels)
    if found.p >= RESTART_P:
        return None
    text = (
        "the overhead differs from one restart of the workers to the next "
        f"(sd {found.between_sd_percent:.2f} % between {found.restarts} restarts): "
    )
    low, high = found.ci95_percent
    if found.restarts < FEWEST_RESTARTS_FOR_AN_INTERVAL:
        text += "a longer duet has more restarts"
    else:
        text += f"with restarts as replicates it is {found.overhead_percent:+.2f} % ({low:+.2f} to {high:+.2f})"
    return Notice("restarts-differ", text, found.between_sd_percent)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
