"""One technique with N tenants: the measured values, the model's values, and whether they meet the question."""

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
# Small models are not extrapolated beyond this multiple of the measured number of tenants.
REACH = 2
SECONDS_PER_H = 3600.0
MILLION = 1e6


@dataclass(frozen=True)
class Figure:
    """One figure of the worst tenant, if figures per tenant are known: measured and modelled."""

    name: str
    value: float
    """The model's."""
    low: float | None
    high: float | None
    """The 95 % interval of a new run; None if unknown."""
    limit: float
    meets: Meets
    measured: float | None = None
    """The geometric mean of the runs, if this number of tenants was measured."""
    of_worst: bool = False
    """True for the worst tenant's value; False for that of all tenants, if the source has no figures per tenant."""

    @property
    def decisive(self) -> float:
        """The measured value, or else the model's."""
        return self.value if self.measured is None else self.measured

    @property
    def has_interval(self) -> bool:
        """Whether the model's value has an interval; otherwise only the value is judged."""
        return self.low is not None and self.high is not None

    def holds(self, value: float) -> bool:
        """Whether this value is within the limit."""
        return value >= self.limit if self.name == RATE else value <= self.limit


@dataclass(frozen=True)
class Row:
    """One technique with N tenants."""

    technique: str
    title: str
    tenants: int
    basis: Basis
    mean_ms: Triple
    """The model's value over all tenants."""
    measured_ms: float | None
    figures: tuple[Figure, ...]
    aggregate_per_s: Triple
    """The model's."""
    measured_per_s: float | None
    cost_per_million: float | None
    """Uses the measured throughput if there is one."""
    meets: Meets
    why_unsure: str = ""

    @property
    def was_measured(self) -> bool:
        """Whether any run had this number of tenants, whether used in the fit or not."""
        return self.measured_ms is not None

    @property
    def per_s(self) -> float:
        """All tenants' throughput: as measured, or else the model's."""
        return self.aggregate_per_s[0] if self.measured_per_s is None else self.measured_per_s

    @property
    def has_interval(self) -> bool:
        """Whether all figures have an interval."""
        return all(figure.has_interval for figure in self.figures)

    @property
    def holds(self) -> bool:
        """Whether the values themselves, without their intervals, meet the question."""
        return all(figure.holds(figure.decisive) for figure in self.figures)


@dataclass(frozen=True)
class Scales:
    """The ratios that turn the model of the mean into the requested figures."""

    ratios: tuple[Ratio, ...]
    """One per target."""
    uneven: tuple[Unevenness, ...]
    """One per target."""
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
    """Return whether this number of tenants was fitted, measured but not fitted, or not measured."""
    if tenants in model.series.tenants:
        return "measured"
    if tenants in model.whole.tenants:
        return "left out"
    return "extrapolated" if model.extrapolates(tenants) else "interpolated"


def throughput_factor(model: Fitted) -> float:
    """Return measured throughput over tenants / mean latency: the batch size, less the time between inferences.

    Tenants send the next request as soon as they are served, so this is 1 for single inferences and 1 if unknown.
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
    # Both must agree: a model does not overrule a measurement, nor one measurement the model's uncertainty.
    if measured is not None:
        held.append(figure.holds(measured))
    meets: Meets = "yes" if all(held) else "unsure" if any(held) else "no"
    return Figure(name, value, low, high, limit, meets, measured, of_worst)


def _why(figures: Sequence[Figure]) -> str:
    for figure in figures:
        if figure.meets == "unsure" and figure.measured is not None:
            bounds = (figure.value,) if figure.low is None or figure.high is None else (figure.low, figure.high)
            if len({figure.holds(bound) for bound in bounds}) == 1:
                return "the model and the measurement disagree about the target"
    return "the target is inside the interval"


def _doubt(model: Fitted, ratios: Sequence[Ratio], figures: Iterable[Figure], basis: Basis, tenants: int) -> str:
    """Return why an unmeasured row must not be called a yes, whatever its interval is."""
    if basis in ("measured", "left out"):
        return ""
    if not model.form_checked:
        return "the form of the model is not confirmed, so only measured numbers of tenants count"
    if not all(figure.has_interval for figure in figures):
        return "no interval, and no run with this number of tenants"
    if tenants > REACH * max(model.series.tenants):
        return f"more than {REACH} times the measured tenants is too far for a small model"
    if basis == "extrapolated" and any(ratio.changes for ratio in ratios):
        return "the ratio of the percentile to the mean changes with the number of tenants, so it is not extrapolated"
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
    """Return the throughput; if only a mean is known, assume tenants that send requests without a pause."""
    return tenants * 1000.0 / run.mean_ms if run.aggregate_per_s is None else run.aggregate_per_s


def _each_per_s(run: Run, tenants: int) -> float:
    return _together_per_s(run, tenants) / tenants if run.slowest_per_s is None else run.slowest_per_s


def _around(log: float, uncertainty: Uncertainty) -> Triple:
    low, high = uncertainty.around(log) or (None, None)
    return math.exp(log), low, high


def _of_worst(log: float, uncertainty: Uncertainty, spread: Spread) -> Triple:
    """Return the worst tenant's figure; if no run decides the unevenness, the interval extends to the mildest case."""
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
    """Return the price per million inferences: of the required ones if a rate is given, else of all."""
    if question.price_per_h is None:
        return None
    served_per_s = aggregate_per_s if question.rate_per_s is None else tenants * question.rate_per_s
    return question.price_per_h / SECONDS_PER_H / served_per_s * MILLION
