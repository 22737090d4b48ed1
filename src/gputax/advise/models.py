"""One small model per technique: choose its form, fit it and check it against the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gputax.advise.fitting import Fit, Observed, Uncertainty, fit, left_out_errors, observe
from gputax.advise.forms import CONTENDED, PARTITION, TURNS, Form
from gputax.advise.table import Point, Series, Table, from_record
from gputax.errors import ResultsError
from gputax.plan.notices import Notice
from gputax.plan.techniques import Technique
from gputax.results.documents.sharing import SharingRecord

# The kind of limit decides the form, unless the technique defines its own.
FORMS_BY_TECHNIQUE: dict[str, tuple[Form, ...]] = {"exclusive": (PARTITION,), "time-slicing": (TURNS,)}
FORMS_BY_BOUND: dict[str, tuple[Form, ...]] = {
    "none": (CONTENDED, TURNS),
    "cap": (CONTENDED,),
    "slice": (PARTITION,),
}
# Alternative forms that a technique's own form is compared with.
RIVALS: dict[str, tuple[Form, ...]] = {"turns": (CONTENDED,), "contention": (TURNS,), "partition": (CONTENDED,)}
LACK_RISK = 0.05
# Without repeats, noise and a wrong form cannot be told apart; residuals above this count as a lack of fit.
LARGEST_RESIDUAL_PERCENT = 5.0
# A rival is only reported if it is this much better: leave-one-out errors of four points are rough.
CLEARLY_BETTER = 0.5
NOTEWORTHY_ERROR = 0.02
NO_INTERVAL = "no interval: there are neither repeats nor residuals, so only the values are judged"


class CurvePoint(NamedTuple):
    """The model at one number of tenants, with the 95 % interval of a new run; bounds are None if unknown."""

    tenants: int
    value_ms: float
    low_ms: float | None
    high_ms: float | None
    extrapolated: bool


@dataclass(frozen=True)
class Refused:
    """A technique without a model: why, and what to measure next."""

    technique: Technique
    why: str
    next_step: str


@dataclass(frozen=True)
class HeldOut:
    """A measured point that was excluded from the fit."""

    tenants: int
    measured_ms: float
    predicted_ms: float

    @property
    def error_percent(self) -> float:
        """Error of the prediction in percent; positive means predicted too slow."""
        return 100.0 * (self.predicted_ms / self.measured_ms - 1.0)


@dataclass(frozen=True)
class Fitted:
    """The model of one technique's mean latency."""

    series: Series
    """The points it was fitted to."""
    whole: Series
    """All measured points, including those excluded from the fit."""
    fit: Fit
    choice: str
    """Why this form was chosen."""
    notices: tuple[Notice, ...]
    held_out: tuple[HeldOut, ...] = ()

    @property
    def technique(self) -> Technique:
        """The technique that the model describes."""
        return self.series.technique

    @property
    def form_checked(self) -> bool:
        """Whether the data had at least one spare point and no lack of fit was found."""
        return self.fit.spare_points > 0 and not any(notice.code == "lack-of-fit" for notice in self.notices)

    def log_ms(self, tenants: int) -> tuple[float, Uncertainty]:
        """Return the log of the mean latency and how far a new run may be from it."""
        return self.fit.log_ms(tenants), self.fit.uncertainty(tenants)

    def extrapolates(self, tenants: int) -> bool:
        """Whether this number of tenants is outside the measured range."""
        return not min(self.series.tenants) <= tenants <= max(self.series.tenants)

    def curve(self, tenants: Sequence[int]) -> list[CurvePoint]:
        """Return the model at these numbers of tenants; numbers above its capacity are skipped."""
        points = []
        for count in tenants:
            if count < 1 or (self.series.capacity is not None and count > self.series.capacity):
                continue
            log, uncertainty = self.log_ms(count)
            low, high = uncertainty.around(log) or (None, None)
            points.append(CurvePoint(count, math.exp(log), low, high, self.extrapolates(count)))
        return points


def fit_or_refuse(source: SharingRecord | Table, only: Sequence[int] = ()) -> tuple[Fitted | Refused, ...]:
    """Fit every technique, or say why it has no model."""
    table = from_record(source) if isinstance(source, SharingRecord) else source
    return tuple(fit_series(series, only) for series in table.series)


def fit_series(series: Series, only: Sequence[int] = ()) -> Fitted | Refused:
    """Fit one technique."""
    used = series.only(only) if only else series
    forms = forms_for(series.technique)
    if series.changing_slices:
        return Refused(
            series.technique,
            "the slices had different sizes, so the points do not belong to one partition",
            f"gputax share --tech {series.technique.name} with one --slices for all numbers of tenants",
        )
    single = series.technique.single
    possible = [form for form in forms if not form.lacks(used.tenants, single=single)]
    if not possible:
        lacking = forms[0].lacks(used.tenants, single=single)
        if only and len(series.tenants) > len(used.tenants):
            next_step = f"fit more points: {','.join(map(str, series.tenants))} were measured"
        else:
            next_step = f"gputax share --tech {series.technique.name} --tenants {_advised(series.tenants)}"
        return Refused(series.technique, f"the form {forms[0].name} needs {lacking}", next_step)
    try:
        observed = _observed(used.points)
    except ResultsError as error:
        return Refused(series.technique, error.what, error.next_step)
    form, choice = _choose(possible, observed, series.technique)
    fitted = fit(form, observed)
    held_out = _held_out(fitted, series, used)
    return Fitted(used, series, fitted, choice, (*used.notices, *_checks(fitted, observed, series.technique)), held_out)


def _observed(points: Sequence[Point]) -> tuple[Observed, ...]:
    return observe(
        [(point.tenants, [run.mean_ms for run in point.runs]) for point in points],
        [[run.repeat for run in point.runs] for point in points],
    )


def forms_for(technique: Technique) -> tuple[Form, ...]:
    """Return the forms that are candidates for this technique."""
    return FORMS_BY_TECHNIQUE.get(technique.name, FORMS_BY_BOUND[technique.bound])


def _advised(measured: Sequence[int]) -> str:
    """Return numbers of tenants to measure: those already measured, 1, and enough others to check a form."""
    wanted = sorted({1, *measured})
    for extra in (3, 5, 7):
        if len(wanted) < 4:
            wanted = sorted({*wanted, extra})
    return ",".join(map(str, wanted))


def _choose(forms: Sequence[Form], observed: Sequence[Observed], technique: Technique) -> tuple[Form, str]:
    if len(forms) == 1:
        return forms[0], f"the nature of {technique.title}: {forms[0].why}"
    errors = _compared(forms, observed)
    if not errors:
        return forms[0], f"assumed: {forms[0].why}; too few points to choose between forms"
    best = min(forms, key=lambda form: errors[form.name])
    shown = ", ".join(f"{form.name} {100 * errors[form.name]:.1f} %" for form in forms)
    return best, f"chosen by its leave-one-out error ({shown}): {best.why}"


def _compared(forms: Sequence[Form], observed: Sequence[Observed]) -> dict[str, float]:
    """Return each form's typical leave-one-out error, over the points that all forms can predict."""
    errors = {form.name: left_out_errors(form, observed) for form in forms}
    common = set.intersection(*(set(each) for each in errors.values()))
    if not common:
        return {}
    return {name: math.sqrt(sum(each[at] ** 2 for at in common) / len(common)) for name, each in errors.items()}


def _checks(fitted: Fit, observed: Sequence[Observed], technique: Technique) -> tuple[Notice, ...]:
    found = []
    worst = max((abs(each) for each in fitted.residuals_percent), default=0.0)
    if fitted.spare_points == 0 and not technique.single:
        text = f"{len(observed)} points for {len(fitted.theta)} parameters: no point is left to check the form"
        found.append(Notice("form-not-checked", f"{text}; measure one more number of tenants"))
    if fitted.lack_p is not None and fitted.lack_p < LACK_RISK:
        text = f"lack of fit: residuals up to {worst:.1f} % exceed the spread of the repeats"
        found.append(Notice("lack-of-fit", f"{text} (p = {fitted.lack_p:.2g}); the interval includes it", worst))
    elif fitted.repeats_df == 0 and worst > LARGEST_RESIDUAL_PERCENT:
        found.append(Notice("lack-of-fit", f"lack of fit: residuals up to {worst:.1f} %", worst))
    if fitted.repeats_df == 0:
        text = "no repeats: the interval is from the residuals" if fitted.has_interval else NO_INTERVAL
        found.append(Notice("no-spread", text))
    rival = _better_rival(fitted.form, observed)
    if rival:
        found.append(rival)
    return tuple(found)


def _better_rival(form: Form, observed: Sequence[Observed]) -> Notice | None:
    """Warn when another form has a clearly smaller leave-one-out error than the technique's own."""
    for rival in RIVALS[form.name]:
        if rival.lacks([each.tenants for each in observed]):
            continue
        errors = _compared((form, rival), observed)
        if errors and errors[form.name] > NOTEWORTHY_ERROR and errors[rival.name] < CLEARLY_BETTER * errors[form.name]:
            text = (
                f"the form {rival.name} has a smaller leave-one-out error ({100 * errors[rival.name]:.1f} %) than "
                f"{form.name} ({100 * errors[form.name]:.1f} %): {rival.why}"
            )
            return Notice("better-form", text, 100.0 * errors[form.name])
    return None


def _held_out(fitted: Fit, series: Series, used: Series) -> tuple[HeldOut, ...]:
    rest = [point for point in series.points if point.tenants not in used.tenants]
    observed = _observed(rest) if rest else ()
    return tuple(
        HeldOut(each.tenants, math.exp(each.log_ms), math.exp(fitted.log_ms(each.tenants))) for each in observed
    )
