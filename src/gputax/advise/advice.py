"""Hold the models against the question: which technique, how many tenants, how sure, at what cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from gputax.advise.models import Fitted, Refused, fit_or_refuse
from gputax.advise.ratios import Ratio, ratio_of
from gputax.advise.table import Table
from gputax.advise.targets import Question
from gputax.errors import ResultsError, UsageError

Meets = Literal["yes", "unsure", "no"]
Basis = Literal["measured", "interpolated", "extrapolated"]
_WORST_FIRST: tuple[Meets, ...] = ("no", "unsure", "yes")
# Beyond this many times the measured tenants no small model is believed.
REACH = 2
SECONDS_PER_H = 3600.0
MILLION = 1e6


@dataclass(frozen=True)
class Figure:
    """One predicted figure with the 95 % interval of a new run, and whether it holds its limit."""

    name: str
    value: float
    low: float | None
    high: float | None
    limit: float
    meets: Meets
    measured: float | None = None
    """The geometric mean of the runs, where so many tenants were measured."""


@dataclass(frozen=True)
class Row:
    """One technique with so many tenants."""

    technique: str
    title: str
    tenants: int
    basis: Basis
    mean_ms: tuple[float, float | None, float | None]
    measured_ms: float | None
    figures: tuple[Figure, ...]
    aggregate_per_s: tuple[float, float | None, float | None]
    cost_per_million: float | None
    meets: Meets
    why_unsure: str = ""

    @property
    def holds(self) -> bool:
        """Whether the predicted values themselves, without their intervals, meet the question."""
        return all(
            figure.value >= figure.limit if figure.name == "rate" else figure.value <= figure.limit
            for figure in self.figures
        )


@dataclass(frozen=True)
class Considered:
    """A technique with its model, its ratios and all its rows."""

    model: Fitted
    ratios: tuple[Ratio, ...]
    rows: tuple[Row, ...]

    @property
    def best(self) -> Row | None:
        """The row with the most tenants that meets the question."""
        return max((row for row in self.rows if row.meets == "yes"), key=lambda row: row.tenants, default=None)


@dataclass(frozen=True)
class Advice:
    """The answer, with all that it rests on."""

    table: Table
    question: Question
    considered: tuple[Considered, ...]
    refused: tuple[Refused, ...]

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows of all techniques."""
        return tuple(row for each in self.considered for row in each.rows)

    @property
    def meets(self) -> Meets:
        """The best that any row reaches."""
        return max((row.meets for row in self.rows), key=_WORST_FIRST.index, default="no")

    def best(self, *, measured: bool = False) -> Row | None:
        """Return the row with the most tenants that meets the question; of equals, that with the most throughput."""
        rows = [row for row in self.rows if row.meets == "yes" and (row.basis == "measured" or not measured)]
        return max(rows, key=lambda row: (row.tenants, row.aggregate_per_s[0]), default=None)

    def likeliest(self) -> Row | None:
        """Return the row to look at where nothing is sure: first those whose value itself meets the question."""
        rows = [row for row in self.rows if row.meets == "unsure"]
        return max(rows, key=lambda row: (row.holds, row.tenants, row.aggregate_per_s[0]), default=None)

    def cheapest(self) -> Row | None:
        """Return the row that meets the question with the highest throughput of all tenants together."""
        rows = [row for row in self.rows if row.meets == "yes"]
        return max(rows, key=lambda row: row.aggregate_per_s[0], default=None)


def advise(table: Table, question: Question, only: Sequence[int] = ()) -> Advice:
    """Fit every technique and judge each number of tenants."""
    considered, refused = [], []
    for each in fit_or_refuse(table, only):
        if isinstance(each, Refused):
            refused.append(each)
            continue
        ratios, lacking = _ratios(each, question)
        if lacking:
            refused.append(Refused(each.technique, *_no_percentile(table, lacking, each.technique.name)))
            continue
        rows = tuple(_row(each, ratios, question, count) for count in _counts(each, question))
        considered.append(Considered(each, ratios, rows))
    if not considered:
        raise _nothing(table, refused)
    return Advice(table, question, tuple(considered), tuple(refused))


def _nothing(table: Table, refused: Sequence[Refused]) -> ResultsError | UsageError:
    if not refused:
        return ResultsError(
            "no valid cell to fit a model to", where=table.title, next_step="gputax share, until its cells are valid"
        )
    what = "; ".join(f"{each.technique.title}: {each.why}" for each in refused)
    if table.published and len({each.why for each in refused}) == 1:
        return UsageError(refused[0].why, where=table.title, next_step=refused[0].next_step)
    return ResultsError(f"no technique can be modelled: {what}", where=table.title, next_step=refused[0].next_step)


def _no_percentile(table: Table, statistic: str, technique: str) -> tuple[str, str]:
    if table.published:
        return f"the published data have means only: nothing can be said of {statistic}", "use --slo mean=..."
    return f"no run had enough samples for {statistic}", f"gputax share --tech {technique} with a longer --window"


def _ratios(model: Fitted, question: Question) -> tuple[tuple[Ratio, ...], str]:
    found = []
    for target in question.targets:
        ratio = ratio_of(model.series, target.statistic)
        if ratio is None:
            return (), target.statistic
        found.append(ratio)
    return tuple(found), ""


def _counts(model: Fitted, question: Question) -> range:
    held_out = (held.tenants for held in model.held_out)
    last = question.up_to or max(REACH * max(model.series.tenants), *held_out, 1)
    return range(1, min(last, model.series.capacity or last) + 1)


def _row(model: Fitted, ratios: Sequence[Ratio], question: Question, tenants: int) -> Row:
    log, uncertainty = model.log_ms(tenants)
    low, high = uncertainty.around(log) or (None, None)
    value = math.exp(log)
    basis = _basis(model, tenants)
    figures = [
        _latency(model, ratio, target.at_most_ms, tenants)
        for ratio, target in zip(ratios, question.targets, strict=True)
    ]
    factor = throughput_factor(model)
    each_per_s = _inverse(1000.0 * factor, (value, low, high))
    if question.rate_per_s is not None:
        figures.append(_rate(each_per_s, question.rate_per_s))
    meets = _worst(figure.meets for figure in figures)
    doubt = _doubt(model, ratios, basis, tenants)
    if meets == "yes" and doubt:
        meets = "unsure"
    together = tuple(None if bound is None else tenants * bound for bound in each_per_s)
    measured = _measured(model, tenants, "mean")
    return Row(
        technique=model.technique.name,
        title=model.technique.title,
        tenants=tenants,
        basis=basis,
        mean_ms=(value, low, high),
        measured_ms=measured,
        figures=tuple(figures),
        aggregate_per_s=(tenants * each_per_s[0], together[1], together[2]),
        cost_per_million=_cost(question, tenants, tenants * each_per_s[0]),
        meets=meets,
        why_unsure=doubt if meets == "unsure" else "",
    )


def _basis(model: Fitted, tenants: int) -> Basis:
    if tenants in model.series.tenants:
        return "measured"
    return "extrapolated" if model.extrapolates(tenants) else "interpolated"


def _doubt(model: Fitted, ratios: Sequence[Ratio], basis: Basis, tenants: int) -> str:
    """Say why a row must not be called a yes, whatever its interval says."""
    if basis == "measured":
        return ""
    if not model.form_checked:
        return "the form of the model is not confirmed, so only measured numbers of tenants are believed"
    if tenants > REACH * max(model.series.tenants):
        return f"more than {REACH} times the measured tenants is too far for a small model"
    if basis == "extrapolated" and any(ratio.changes for ratio in ratios):
        return "the percentile grows or falls against the mean, and is not carried beyond what was measured"
    return ""


def _latency(model: Fitted, ratio: Ratio, limit: float, tenants: int) -> Figure:
    log, uncertainty = model.log_ms(tenants)
    log += ratio.log
    bounds = uncertainty.with_parts_of(ratio.uncertainty).around(log)
    low, high = bounds or (None, None)
    measured = _measured(model, tenants, ratio.statistic)
    meets = _at_most(low, high, limit)
    if meets == "yes" and measured is not None and measured > limit:
        meets = "unsure"
    return Figure(ratio.statistic, math.exp(log), low, high, limit, meets, measured)


def _at_most(low: float | None, high: float | None, limit: float) -> Meets:
    if low is None or high is None:
        return "unsure"
    return "yes" if high <= limit else "no" if low > limit else "unsure"


def _rate(each_per_s: tuple[float, float | None, float | None], needed: float) -> Figure:
    value, low, high = each_per_s
    meets: Meets = "unsure"
    if low is not None and high is not None:
        meets = "yes" if low >= needed else "no" if high < needed else "unsure"
    return Figure("rate", value, low, high, needed, meets)


def _measured(model: Fitted, tenants: int, statistic: str) -> float | None:
    runs = [run for point in model.series.points if point.tenants == tenants for run in point.runs]
    values = [run.mean_ms if statistic == "mean" else run.percentiles_ms.get(statistic) for run in runs]
    if statistic == "mean":
        values += [held.measured_ms for held in model.held_out if held.tenants == tenants]
    known = [math.log(value) for value in values if value is not None]
    return math.exp(sum(known) / len(known)) if known else None


def throughput_factor(model: Fitted) -> float:
    """Return measured throughput over tenants / mean latency: the batch size, less what lies between inferences.

    Tenants ask again as soon as they are served, so this is 1 for single inferences; 1 is taken where nothing tells.
    """
    logs = [
        math.log(run.aggregate_per_s * run.mean_ms / 1000.0 / point.tenants)
        for point in model.series.points
        for run in point.runs
        if run.aggregate_per_s is not None
    ]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0


def _inverse(
    numerator: float, of: tuple[float, float | None, float | None]
) -> tuple[float, float | None, float | None]:
    value, low, high = of
    return numerator / value, None if high is None else numerator / high, None if low is None else numerator / low


def _cost(question: Question, tenants: int, aggregate_per_s: float) -> float | None:
    """Return the price of a million inferences: of those that are needed where a rate is given, else of all."""
    if question.price_per_h is None:
        return None
    served_per_s = aggregate_per_s if question.rate_per_s is None else tenants * question.rate_per_s
    return question.price_per_h / SECONDS_PER_H / served_per_s * MILLION


def _worst(found: Iterable[Meets]) -> Meets:
    return min(found, key=_WORST_FIRST.index)
