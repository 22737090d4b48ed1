"""One technique with so many tenants: what was measured, what the model says, and whether the question is met."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from gputax.advise.fitting import Uncertainty
from gputax.advise.models import Fitted
from gputax.advise.ratios import RATE, Ratio, Spread, Unevenness, worst
from gputax.advise.table import Run
from gputax.advise.targets import Question

Meets = Literal["yes", "unsure", "no"]
Basis = Literal["measured", "left out", "interpolated", "extrapolated"]
Triple = tuple[float, float | None, float | None]
WORST_FIRST: tuple[Meets, ...] = ("no", "unsure", "yes")
# Beyond this many times the measured tenants no small model is believed.
REACH = 2
SECONDS_PER_H = 3600.0
MILLION = 1e6


@dataclass(frozen=True)
class Figure:
    """One figure of the worst tenant, where single tenants are known: as measured, and as the model has it."""

    name: str
    value: float
    """The model's."""
    low: float | None
    high: float | None
    """The 95 % interval of a new run; None where nothing tells."""
    limit: float
    meets: Meets
    measured: float | None = None
    """The geometric mean of the runs, where so many tenants were measured."""
    of_worst: bool = False
    """It is the worst tenant's; else that of all tenants, because the source tells of no single one."""

    @property
    def decisive(self) -> float:
        """What was measured, or else the model's value."""
        return self.value if self.measured is None else self.measured

    @property
    def has_interval(self) -> bool:
        """Whether the model's value has one; else the value alone was judged."""
        return self.low is not None and self.high is not None

    def holds(self, value: float) -> bool:
        """Whether such a value is within the limit."""
        return value >= self.limit if self.name == RATE else value <= self.limit


@dataclass(frozen=True)
class Row:
    """One technique with so many tenants."""

    technique: str
    title: str
    tenants: int
    basis: Basis
    mean_ms: Triple
    """The model's, over all tenants."""
    measured_ms: float | None
    figures: tuple[Figure, ...]
    aggregate_per_s: Triple
    """The model's."""
    measured_per_s: float | None
    cost_per_million: float | None
    """By the measured throughput where there is one."""
    meets: Meets
    why_unsure: str = ""

    @property
    def was_measured(self) -> bool:
        """Whether any run had so many tenants, seen by the fit or not."""
        return self.measured_ms is not None

    @property
    def per_s(self) -> float:
        """All tenants' throughput: as measured, or else the model's."""
        return self.aggregate_per_s[0] if self.measured_per_s is None else self.measured_per_s

    @property
    def has_interval(self) -> bool:
        """Whether all figures have one."""
        return all(figure.has_interval for figure in self.figures)

    @property
    def holds(self) -> bool:
        """Whether the values themselves, without their intervals, meet the question."""
        return all(figure.holds(figure.decisive) for figure in self.figures)


@dataclass(frozen=True)
class Scales:
    """What turns the model of the mean into the figures that were asked for."""

    ratios: tuple[Ratio, ...]
    """One for each target."""
    uneven: tuple[Unevenness, ...]
    """One for each target."""
    uneven_rate: Unevenness


def row(model: Fitted, scales: Scales, question: Question, tenants: int) -> Row:
    """Judge one number of tenants."""
    log, uncertainty = model.log_ms(tenants)
    mean_ms = _around(log, uncertainty)
    basis = basis_of(model, tenants)
    figures = [
        _latency(model, ratio, uneven, target.at_most_ms, tenants)
        for ratio, uneven, target in zip(scales.ratios, scales.uneven, question.targets, strict=True)
    ]
    if question.rate_per_s is not None:
        figures.append(_rate(model, scales.uneven_rate, question.rate_per_s, tenants))
    together = _inverse(1000.0 * tenants * throughput_factor(model), mean_ms)
    measured_per_s = _measured(model, tenants, lambda run: _together_per_s(run, tenants))
    meets = min((figure.meets for figure in figures), key=WORST_FIRST.index)
    why = _why(figures) if meets == "unsure" else ""
    doubt = _doubt(model, scales.ratios, figures, basis, tenants)
    if meets == "yes" and doubt:
        meets, why = "unsure", doubt
    return Row(
        technique=model.technique.name,
        title=model.technique.title,
        tenants=tenants,
        basis=basis,
        mean_ms=mean_ms,
        measured_ms=_measured(model, tenants, lambda run: run.mean_ms),
        figures=tuple(figures),
        aggregate_per_s=together,
        measured_per_s=measured_per_s,
        cost_per_million=_cost(question, tenants, together[0] if measured_per_s is None else measured_per_s),
        meets=meets,
        why_unsure=why,
    )


def basis_of(model: Fitted, tenants: int) -> Basis:
    """Say whether the fit saw so many tenants, or a run had them that it did not see, or none had."""
    if tenants in model.series.tenants:
        return "measured"
    if tenants in model.whole.tenants:
        return "left out"
    return "extrapolated" if model.extrapolates(tenants) else "interpolated"


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


def _latency(model: Fitted, ratio: Ratio, uneven: Unevenness, limit: float, tenants: int) -> Figure:
    log, uncertainty = model.log_ms(tenants)
    around = _of_worst(log + ratio.log, uncertainty.with_parts_of(ratio.uncertainty), uneven.at(tenants))
    measured = _measured(model, tenants, lambda run: _statistic(run, ratio.statistic, tenants))
    return _figure(ratio.statistic, around, limit, measured, uneven.known)


def _rate(model: Fitted, uneven: Unevenness, needed: float, tenants: int) -> Figure:
    log, uncertainty = model.log_ms(tenants)
    each_log = math.log(1000.0 * throughput_factor(model)) - log
    around = _of_worst(each_log, uncertainty, uneven.at(tenants))
    measured = _measured(model, tenants, lambda run: _each_per_s(run, tenants))
    return _figure(RATE, around, needed, measured, uneven.known)


def _figure(name: str, around: Triple, limit: float, measured: float | None, of_worst: bool) -> Figure:
    value, low, high = around
    figure = Figure(name, value, low, high, limit, "unsure", measured, of_worst)
    bounds = (value, value) if low is None or high is None else (low, high)
    held = [figure.holds(bound) for bound in bounds]
    # What was measured is not explained away by a model, nor the model's doubt by one measurement.
    if measured is not None:
        held.append(figure.holds(measured))
    meets: Meets = "yes" if all(held) else "unsure" if any(held) else "no"
    return Figure(name, value, low, high, limit, meets, measured, of_worst)


def _why(figures: Sequence[Figure]) -> str:
    for figure in figures:
        if figure.meets == "unsure" and figure.measured is not None:
            bounds = (figure.value,) if figure.low is None or figure.high is None else (figure.low, figure.high)
            if len({figure.holds(bound) for bound in bounds}) == 1:
                return "the model and the measurement are on different sides of the target"
    return "the target lies within the interval"


def _doubt(model: Fitted, ratios: Sequence[Ratio], figures: Iterable[Figure], basis: Basis, tenants: int) -> str:
    """Say why a row that no run had must not be called a yes, whatever its interval says."""
    if basis in ("measured", "left out"):
        return ""
    if not model.form_checked:
        return "the form of the model is not confirmed, so only measured numbers of tenants are believed"
    if not all(figure.has_interval for figure in figures):
        return "no interval, and no run of so many tenants"
    if tenants > REACH * max(model.series.tenants):
        return f"more than {REACH} times the measured tenants is too far for a small model"
    if basis == "extrapolated" and any(ratio.changes for ratio in ratios):
        return "the percentile grows or falls against the mean, and is not carried beyond what was measured"
    return ""


def _measured(model: Fitted, tenants: int, of: Callable[[Run], float | None]) -> float | None:
    values = [of(run) for point in model.whole.points if point.tenants == tenants for run in point.runs]
    known = [math.log(value) for value in values if value is not None]
    return math.exp(sum(known) / len(known)) if known else None


def _statistic(run: Run, statistic: str, tenants: int) -> float | None:
    value = worst(run, statistic, tenants)
    if value is not None:
        return value
    return run.mean_ms if statistic == "mean" else run.percentiles_ms.get(statistic)


def _together_per_s(run: Run, tenants: int) -> float:
    """Return the throughput; where only a mean is known, that of tenants who ask again as soon as they are served."""
    return tenants * 1000.0 / run.mean_ms if run.aggregate_per_s is None else run.aggregate_per_s


def _each_per_s(run: Run, tenants: int) -> float:
    return _together_per_s(run, tenants) / tenants if run.slowest_per_s is None else run.slowest_per_s


def _around(log: float, uncertainty: Uncertainty) -> Triple:
    low, high = uncertainty.around(log) or (None, None)
    return math.exp(log), low, high


def _of_worst(log: float, uncertainty: Uncertainty, spread: Spread) -> Triple:
    """Return the worst tenant's figure; the interval reaches to the mildest case where no run tells which it is."""
    joined = uncertainty.with_parts_of(spread.uncertainty)
    value, low, high = _around(log + spread.at_worst, joined)
    _, other_low, other_high = _around(log + spread.at_best, joined)
    if low is None or high is None or other_low is None or other_high is None:
        return value, None, None
    return value, min(low, other_low), max(high, other_high)


def _inverse(numerator: float, of: Triple) -> Triple:
    value, low, high = of
    return numerator / value, None if high is None else numerator / high, None if low is None else numerator / low


def _cost(question: Question, tenants: int, aggregate_per_s: float) -> float | None:
    """Return the price of a million inferences: of those that are needed where a rate is given, else of all."""
    if question.price_per_h is None:
        return None
    served_per_s = aggregate_per_s if question.rate_per_s is None else tenants * question.rate_per_s
    return question.price_per_h / SECONDS_PER_H / served_per_s * MILLION
