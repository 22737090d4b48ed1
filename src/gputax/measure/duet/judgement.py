"""Turn the pairs of a duet into judged metrics; pure."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gputax.measure.duet.pairs import INTERRUPTED, DuetData, DuetRounds
from gputax.plan.budgets import Budget, unused_budgets
from gputax.plan.metrics import METRICS, Metric, duet_metrics
from gputax.plan.notices import Notice
from gputax.results.documents.base import WarningRecord
from gputax.results.documents.comparison import ComparedMetric, PairSeries, Resolution
from gputax.stats.estimates import log_of_lost_percent, log_of_percent, lost_percent_of_log, percent_of_log, t_quantile
from gputax.stats.levels import RestartEstimate, restart_estimate
from gputax.stats.overheads import LEAST_RESTARTS, BlockOverhead, Blocks, mean_overhead, percentile_overhead, refusal
from gputax.stats.pairs import paired_estimate
from gputax.stats.verdicts import Judgement, Risks, judge, judge_absolute, pairs_to_clear
from gputax.text import digits

MAX_SERIES_POINTS = 400
# The control is not the question: it withholds a verdict only where chance alone hardly ever would.
CONTROL_RISK = 0.005
RESTART_P = 0.01
# One false `fail` among all rows has the risk of one: most of it belongs to the metric that decides.
PRIMARY_SHARE, SECONDARY_METRICS = 0.8, 3
# The mean is called the work of few requests where it is surely above the median, and by more than this.
FEW_REQUESTS_PERCENT = 1.0


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
    """The metrics named by a budget: with too few samples they are undecided instead of omitted."""
    bandwidth: str = ""
    """The metric that replaces the mean if a run moves `bytes_per_run`: the same time, in GB/s."""
    bytes_per_run: int = 0
    doubt: str = ""
    """Why the difference may not come from the layer; then the verdict is undecided."""
    risks: Risks = field(default_factory=Risks)
    """Of the bounds; smaller where the duet may look several times."""
    control: Resolution | None = None
    seconds: float = 0.0
    """How long the duet took, restarts included: for the time that a verdict would need."""


def judge_duet(question: Question, data: DuetData) -> Judged:
    """Return every metric of the scenario with its verdict, and what else there is to say."""
    rows = _with_typical(judged_rows(question, data))
    totals = next(number for number, row in enumerate(rows) if METRICS[row.metric].percentile is None)
    shown = tuple(WarningRecord(code="pairs", text=text) for text in paired_notices(data))
    rows[totals] = rows[totals].model_copy(update={"warnings": (*rows[totals].warnings, *shown)})
    named = {name: question.budgets[name] for name in question.named}
    notices = [*_processes_differ(data), *unused_budgets(named, (row.metric for row in rows))]
    return Judged(tuple(rows), _series(question, data), tuple(notices))


def judged_rows(question: Question, data: DuetData) -> list[ComparedMetric]:
    """Return every metric of the scenario with its verdict, the one that decides first."""
    blocks = {series: data.blocks(series) for series in data.series}
    metrics = [METRICS[name] for name in _metrics(question, data.series)]
    primaries = sum(question.scenario in metric.primary for metric in metrics)
    rows = Rows(max(1, primaries), max(SECONDARY_METRICS, len(metrics) - primaries))
    return [_row(question, metric, blocks[metric.series], rows) for metric in metrics]


@dataclass(frozen=True)
class Rows:
    """How many rows share the risk of one false `fail`."""

    primary: int = 1
    secondary: int = SECONDARY_METRICS


def _metrics(question: Question, series: tuple[str, ...]) -> tuple[str, ...]:
    """Return the metrics, the one that decides first; a bandwidth replaces the mean of the same times."""
    names = duet_metrics(question.scenario, series)
    return tuple(question.bandwidth if question.bandwidth and name == "latency_mean" else name for name in names)


def resolution(data: DuetData, rounds: DuetRounds) -> Resolution:
    """Return the result of an A/A control."""
    found = _typical(data.blocks())
    # The looks are at B: the noise floor is a plain 95 % interval.
    low, high = found.ratio.one_sided(Risks().bound)
    strict = found.ratio.one_sided(CONTROL_RISK)
    return Resolution(
        half_width_percent=100.0 * found.ratio.half_width(Risks().bound),
        ci95_percent=(_finite(low), _finite(high)),
        pairs=found.pairs,
        seconds=rounds.seconds,
        contains_zero=strict[0] <= 0.0 <= strict[1],
        restarts=found.restarts,
        process_luck_percent=process_luck_percent(data),
    )


def _processes_differ(data: DuetData) -> list[Notice]:
    """Say how much processes differ where it is more than the noise of their pairs; the interval covers it."""
    found = _by_restart(data)
    if found is None or found.p >= RESTART_P:
        return []
    text = (
        f"processes of one program differ: sd {digits(found.between_sd_percent, 2)} % between {found.restarts} restarts"
    )
    return [Notice("restarts-differ", text, found.between_sd_percent)]


def process_luck_percent(data: DuetData) -> float | None:
    """Return how much two processes of one program differ: the sd of their ratio beyond the noise of the pairs."""
    found = _by_restart(data)
    return None if found is None else found.between_sd_percent


def _by_restart(data: DuetData) -> RestartEstimate | None:
    labels = [pair.restart for pair in data.pairs]
    if len(set(labels)) < LEAST_RESTARTS:
        return None
    medians = [(float(np.median(pair.a_ns)), float(np.median(pair.b_ns))) for pair in data.pairs]
    return restart_estimate([a for a, _ in medians], [b for _, b in medians], labels)


def _typical(blocks: Blocks) -> BlockOverhead:
    """Return the overhead of the typical request: the median where there are enough, else the mean."""
    return mean_overhead(blocks) if refusal(blocks, 0.5) else percentile_overhead(blocks, 0.5)


def _row(question: Question, metric: Metric, blocks: Blocks, rows: Rows) -> ComparedMetric:
    budget = question.budgets[metric.name].at(_typical_ms(blocks))
    why_not = refusal(blocks, metric.percentile) if metric.percentile is not None else None
    if why_not:
        return _refused_row(question, metric, blocks, budget, why_not)
    if metric.percentile is not None:
        found = percentile_overhead(blocks, metric.percentile)
    else:
        found = mean_overhead(blocks, lost_percent_of_log if metric.loss == "throughput" else percent_of_log)
    in_percent = budget.unit == "%"
    primary = question.scenario in metric.primary
    pass_risk = question.risks.verdict
    share = PRIMARY_SHARE / rows.primary if primary else (1.0 - PRIMARY_SHARE) / rows.secondary
    fail_risk = pass_risk * share
    if in_percent:
        judgement = judge(found.ratio, budget.value, alpha=pass_risk, fail_alpha=fail_risk)
    elif metric.unit == "ms":
        judgement = judge_absolute(found.difference, budget.value, alpha=pass_risk, fail_alpha=fail_risk)
    else:
        judgement = Judgement("inconclusive", f"a budget in {budget.unit} cannot judge {metric.title}")
    judgement = _withheld(question, found, judgement)
    low, high = found.ratio.one_sided(question.risks.bound)
    low_ms, high_ms = found.difference.one_sided(question.risks.bound)
    timed = metric.unit == "ms"
    decides = primary or metric.name in question.named or judgement.verdict == "fail"
    undecided = judgement.verdict == "inconclusive" and in_percent and decides and not question.doubt
    seconds = _seconds_needed(question, found, budget) if undecided else None
    return ComparedMetric(
        **_common(question, metric, budget, judgement),
        base_value=_in_unit(found.a_ns, metric, question),
        other_value=_in_unit(found.b_ns, metric, question),
        overhead_percent=found.ratio.value,
        ci95_percent=(_finite(low), _finite(high)),
        overhead_absolute=found.difference.value if timed else None,
        ci95_absolute=(_finite(low_ms), _finite(high_ms)) if timed else None,
        pairs=found.pairs,
        pairs_needed=None if seconds is None else math.ceil(found.pairs * seconds / max(question.seconds, 1e-9)),
        seconds_needed=seconds,
        restarts=found.restarts,
        decides=decides,
    )


def paired_notices(data: DuetData) -> tuple[str, ...]:
    """Return what the pairs themselves show: an order effect, a drift, a few pairs that dominate."""
    estimate = paired_estimate(
        [pair.a_mean_ns for pair in data.pairs],
        [pair.b_mean_ns for pair in data.pairs],
        b_first=[pair.b_first for pair in data.pairs],
        time_s=[pair.time_s for pair in data.pairs],
        resamples=0,
    )
    return estimate.notices


def _withheld(question: Question, found: BlockOverhead, judgement: Judgement) -> Judgement:
    """Return the verdict, or why the evidence does not carry it."""
    if judgement.verdict not in ("pass", "fail"):
        return judgement
    why = _why_withheld(question, found, judgement)
    if not why:
        return judgement
    return dataclasses.replace(
        judgement,
        verdict="inconclusive",
        reason=f"{why}; otherwise this would be a {judgement.verdict}: {judgement.reason}",
    )


def _why_withheld(question: Question, found: BlockOverhead, judgement: Judgement) -> str:
    if question.doubt:
        return question.doubt
    if found.restarts < LEAST_RESTARTS:
        return (
            f"{found.restarts} start{'s' if found.restarts != 1 else ''} of the workers: how much processes differ "
            f"needs {LEAST_RESTARTS}"
        )
    control = question.control
    if control is not None and not control.contains_zero:
        return "the A/A control found a difference between two equal sides"
    budget = judgement.budget
    in_percent = judgement.verdict == "pass" and judgement.unit == "%" and budget is not None
    if control is not None and in_percent and control.half_width_percent >= (budget or 0.0):
        return f"the noise floor of {digits(control.half_width_percent, 2)} % is not below the budget"
    low, high = found.ratio.one_sided(question.risks.bound)
    by_restart = None if found.middle is None else found.ratio.shown(found.middle)
    if by_restart is not None and not low <= by_restart <= high:
        return f"two methods disagree: all pairs together, and the middle of the restarts ({by_restart:+.2f} %)"
    return ""


def _typical_ms(blocks: Blocks) -> float:
    """Return the median request of the base side: it decides which budget fits the size."""
    return float(np.median(blocks.a.latency_ns)) / 1e6


def _refused_row(question: Question, metric: Metric, blocks: Blocks, budget: Budget, why: str) -> ComparedMetric:
    return ComparedMetric(
        **_common(question, metric, budget, Judgement("inconclusive", why)),
        base_value=None,
        other_value=None,
        overhead_percent=None,
        pairs=blocks.pairs,
        restarts=blocks.restarts,
        decides=metric.name in question.named,
    )


def _common(question: Question, metric: Metric, budget: Budget, judgement: Judgement) -> dict[str, Any]:
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
        "bounds": _bounds(judgement),
        "claim": question.claim,
    }


def _seconds_needed(question: Question, found: BlockOverhead, budget: Budget) -> float | None:
    """Return how long a duet would take to decide the budget, if the overhead and the noise are as they look."""
    if found.restarts < LEAST_RESTARTS:
        return question.seconds * LEAST_RESTARTS / max(1, found.restarts)
    to_log = log_of_lost_percent if found.ratio.shown is lost_percent_of_log else log_of_percent
    distance = abs(to_log(budget.value) - found.ratio.centre)
    # The standard error behind the interval, as if it came from the restarts alone.
    reach = found.ratio.half_width(question.risks.bound)
    sd = math.sqrt(found.restarts) * reach / -t_quantile(question.risks.bound, found.restarts - 1.0)
    restarts = pairs_to_clear(sd, distance, alpha=question.risks.verdict)
    return None if restarts is None else question.seconds * max(restarts, found.restarts + 1) / found.restarts


def _with_typical(rows: list[ComparedMetric]) -> list[ComparedMetric]:
    """Say on the mean's row how much of it is typical, where a few slow requests carry the rest."""
    median = next((row for row in rows if row.metric == "latency_p50" and row.overhead_percent is not None), None)

    def split(row: ComparedMetric) -> ComparedMetric:
        if median is None or row.metric not in ("latency_mean", "throughput") or row.overhead_percent is None:
            return row
        whole, typical = row.overhead_percent, median.overhead_percent or 0.0
        surely = row.ci95_percent is not None and row.ci95_percent[0] is not None and row.ci95_percent[0] > typical
        if not surely or whole - typical < FEW_REQUESTS_PERCENT:
            return row
        text = f"{typical:+.1f} % typical (p50), the rest of {whole:+.1f} % from few requests"
        return row.model_copy(update={"warnings": (*row.warnings, WarningRecord(code="few-requests", text=text))})

    return [split(row) for row in rows]


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
        overhead_percent=tuple(100.0 * (pair.b_mean_ns / pair.a_mean_ns - 1.0) for pair in shown),
        b_first=tuple(pair.b_first for pair in shown),
    )


def round_notices(rounds: DuetRounds) -> list[Notice]:
    """Return what happened during the rounds."""
    notices = []
    if rounds.lost_pairs:
        text = f"{len(rounds.lost_pairs)} pairs were dropped because a worker failed during the pair: "
        notices.append(Notice("lost-pairs", text + rounds.lost_pairs[-1], float(len(rounds.lost_pairs))))
    if rounds.stopped_because == INTERRUPTED:
        text = (
            f"interrupted after {rounds.pairs} pairs in {rounds.seconds:.0f} s: the interval is as wide as it was then"
        )
        notices.append(Notice(INTERRUPTED, text))
    return notices


def _bounds(judgement: Judgement) -> tuple[float | None, float | None] | None:
    if judgement.lower is None or judgement.upper is None:
        return None
    return _finite(judgement.lower), _finite(judgement.upper)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
