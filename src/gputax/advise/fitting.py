"""Fit one form to log latencies: weighted least squares, with the uncertainty from the repeats and from the form.

Two sources of error are separate. Repeats of one cell scatter; that gives each point its weight. The misfit of the form
beyond that is one more variance (moments, as in a random-effects mean), added to every point and every prediction.
Data without repeats have only the second, from the residuals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gputax.advise.forms import LARGEST_CONTENTION, Form
from gputax.stats.distributions import f_upper_p, t_quantile
from gputax.stats.inputs import FloatArray, positive_values

# A handful of repeats says little about its own spread, so each point's variance is shrunk toward the common one, which
# counts as much as this many degrees of freedom.
SHARED_DF = 2.0
STEPS = 60
SMALLEST_STEP = 1e-12


@dataclass(frozen=True)
class Observed:
    """One number of tenants: the mean of its runs' log latencies."""

    tenants: int
    log_ms: float
    runs: int
    run_variance: float
    """Between runs of this cell, in squared log units; 0 if unknown."""

    @property
    def variance(self) -> float:
        """The variance of the mean."""
        return self.run_variance / self.runs


@dataclass(frozen=True)
class Fit:
    """A form with its fitted parameters and their uncertainty."""

    form: Form
    observed: tuple[Observed, ...]
    theta: tuple[float, ...]
    covariance: FloatArray
    covariance_of_repeats: FloatArray
    """The part of the covariance explained by the scatter of repeats."""
    form_variance: float
    """Variance that the form does not explain, in squared log units."""
    repeats_df: int
    spare_points: int
    """Points minus parameters: the degrees of freedom left to check the form."""
    lack_p: float | None
    """Probability of residuals this large if the form is right; None without repeats or spare points."""

    @property
    def residuals_percent(self) -> tuple[float, ...]:
        """Measured divided by fitted, minus one, for each point."""
        return tuple(100.0 * math.expm1(each.log_ms - self.log_ms(each.tenants)) for each in self.observed)

    @property
    def has_interval(self) -> bool:
        """Whether the uncertainty of the fit is known."""
        return self.repeats_df > 0 or self.spare_points > 0

    def log_ms(self, tenants: int) -> float:
        """Return the fitted log latency."""
        return float(self.form.log_latency(np.array(self.theta), np.array([float(tenants)]))[0])

    def uncertainty(self, tenants: int) -> Uncertainty:
        """Return how far a new run with this many tenants may differ."""
        if not self.has_interval:
            return Uncertainty.unknown()
        slope = self.form.slopes(np.array(self.theta), np.array([float(tenants)]))[0]
        of_curve = float(slope @ self.covariance @ slope)
        of_repeats = min(of_curve, float(slope @ self.covariance_of_repeats @ slope))
        return Uncertainty(
            (
                (of_repeats, float(self.repeats_df)),
                self._new_run(tenants),
                (of_curve - of_repeats + self.form_variance, float(self.spare_points)),
            )
        )

    def _new_run(self, tenants: int) -> tuple[float, float]:
        """Return the scatter of runs there: that of the nearest point, and beyond all points at least the average."""
        nearest = min(self.observed, key=lambda each: abs(math.log(each.tenants / tenants)))
        freedom = min(float(self.repeats_df), SHARED_DF + nearest.runs - 1)
        counts = [each.tenants for each in self.observed]
        if min(counts) <= tenants <= max(counts):
            return nearest.run_variance, freedom
        return max(nearest.run_variance, sum(each.run_variance for each in self.observed) / len(counts)), freedom

    def parameter(self, index: int) -> tuple[float, float | None, float | None]:
        """Return a parameter and its 95 % bounds on the scale of the fit."""
        value = self.theta[index]
        if not self.has_interval:
            return value, None, None
        total = float(self.covariance[index, index])
        of_repeats = min(total, float(self.covariance_of_repeats[index, index]))
        half = Uncertainty(
            ((of_repeats, float(self.repeats_df)), (total - of_repeats, float(self.spare_points)))
        ).half_width()
        if half is None:
            return value, None, None
        return value, max(value - half, self.form.parameters[index].least), value + half


def observe(points: Sequence[tuple[int, Sequence[float]]]) -> tuple[Observed, ...]:
    """Turn (tenants, latencies of the runs in ms) into points, each with its share of the common spread."""
    logs = [(tenants, np.log(positive_values(runs, f"{tenants} tenants", item="run"))) for tenants, runs in points]
    squares = sum(float(((each - each.mean()) ** 2).sum()) for _, each in logs)
    freedom = sum(each.size - 1 for _, each in logs)
    common = squares / freedom if freedom else 0.0
    return tuple(
        Observed(
            tenants,
            float(each.mean()),
            int(each.size),
            (SHARED_DF * common + float(((each - each.mean()) ** 2).sum())) / (SHARED_DF + each.size - 1),
        )
        for tenants, each in sorted(logs, key=lambda pair: pair[0])
    )


def fit(form: Form, observed: Sequence[Observed]) -> Fit:
    """Fit the form; there must be enough points for it (see `Form.lacks`)."""
    tenants = np.array([float(each.tenants) for each in observed])
    logs = np.array([each.log_ms for each in observed])
    variances = np.array([each.variance for each in observed])
    spread = bool((variances > 0.0).all())
    variances = variances if spread else np.zeros_like(variances)
    weights = 1.0 / variances if spread else np.ones_like(logs)
    theta = _least_squares(form, tenants, logs, weights)
    slopes = form.slopes(theta, tenants)
    spare = len(observed) - len(form.parameters)
    missed, lack_p = 0.0, None
    repeats_df = sum(each.runs - 1 for each in observed) if spread else 0
    nothing = np.zeros((theta.size, theta.size))
    of_repeats = _covariance(slopes, weights) if spread else nothing
    if spare > 0:
        squares = float((weights * (logs - form.log_latency(theta, tenants)) ** 2).sum())
        missed = _missed_variance(squares, spare, weights, slopes) if spread else squares / spare
        lack_p = f_upper_p(squares / spare, spare, repeats_df) if spread else None
    total = variances + missed
    if (total > 0.0).all():
        weights = 1.0 / total
        theta = _least_squares(form, tenants, logs, weights)
        covariance = _covariance(form.slopes(theta, tenants), weights)
    else:
        covariance = nothing
    return Fit(
        form,
        tuple(observed),
        tuple(map(float, theta)),
        covariance,
        of_repeats,
        missed,
        repeats_df,
        max(spare, 0),
        lack_p,
    )


def left_out_errors(form: Form, observed: Sequence[Observed]) -> dict[int, float]:
    """Return the leave-one-out error (ln predicted/measured) for each number of tenants."""
    errors = {}
    for out in observed:
        rest = [each for each in observed if each.tenants != out.tenants]
        if len(rest) < len(form.parameters) or form.lacks([each.tenants for each in rest]):
            continue
        errors[out.tenants] = fit(form, rest).log_ms(out.tenants) - out.log_ms
    return errors


def _covariance(slopes: FloatArray, weights: FloatArray) -> FloatArray:
    # Not a plain inverse: two points closer than float precision must not end in a traceback.
    return np.asarray(np.linalg.pinv((slopes.T * weights) @ slopes), dtype=np.float64)


def _missed_variance(squares: float, spare: int, weights: FloatArray, slopes: FloatArray) -> float:
    """Return the variance between points not explained by the repeats (DerSimonian and Laird, with a design)."""
    scale = float(weights.sum() - np.trace(_covariance(slopes, weights) @ ((slopes.T * weights**2) @ slopes)))
    return max(0.0, (squares - spare) / scale) if scale > 0.0 else 0.0


def _least_squares(form: Form, tenants: FloatArray, logs: FloatArray, weights: FloatArray) -> FloatArray:
    """Gauss-Newton with step halving, within the parameters' bounds; two of three forms are linear and need one."""
    least = np.array([parameter.least for parameter in form.parameters])
    most = np.array([LARGEST_CONTENTION if parameter.name == "contention" else np.inf for parameter in form.parameters])

    def error(theta: FloatArray) -> float:
        return float((weights * (logs - form.log_latency(theta, tenants)) ** 2).sum())

    theta = np.clip(form.start(tenants, logs), least, most)
    for _ in range(STEPS):
        slopes = form.slopes(theta, tenants)
        wanted = logs - form.log_latency(theta, tenants)
        step = np.linalg.lstsq(slopes * np.sqrt(weights)[:, None], wanted * np.sqrt(weights), rcond=None)[0]
        size = 1.0
        while size > 1e-4 and error(np.clip(theta + size * step, least, most)) > error(theta):
            size /= 2.0
        moved = np.clip(theta + size * step, least, most)
        if error(moved) > error(theta) or float(np.abs(moved - theta).max()) < SMALLEST_STEP:
            break
        theta = moved
    # If a parameter is at its bound, optimise the others with it fixed.
    held = theta == least
    if held.any() and not held.all():
        free = ~held
        slopes = form.slopes(theta, tenants)[:, free]
        wanted = logs - form.log_latency(theta, tenants)
        step = np.linalg.lstsq(slopes * np.sqrt(weights)[:, None], wanted * np.sqrt(weights), rcond=None)[0]
        theta = theta.copy()
        theta[free] += step
    return theta


# A factor beyond e^100 has no meaning, and exp() would overflow at 710.
LARGEST_LOG = 100.0


@dataclass(frozen=True)
class Uncertainty:
    """Variances of a sum, each with its degrees of freedom; None means unknown."""

    parts: tuple[tuple[float, float], ...] | None

    @staticmethod
    def unknown() -> Uncertainty:
        """Return the variance of a number with unknown uncertainty."""
        return Uncertainty(None)

    def with_parts_of(self, other: Uncertainty) -> Uncertainty:
        """Return the variance of the sum."""
        if self.parts is None or other.parts is None:
            return Uncertainty.unknown()
        return Uncertainty((*self.parts, *other.parts))

    def half_width(self, risk: float = 0.025) -> float | None:
        """Return the half-width of the two-sided interval, with Welch-Satterthwaite degrees of freedom."""
        if self.parts is None:
            return None
        known = [(variance, freedom) for variance, freedom in self.parts if variance > 0.0 and freedom > 0.0]
        if not known:
            return 0.0 if all(variance <= 0.0 for variance, _ in self.parts) else None
        total = sum(variance for variance, _ in known)
        joined = 1.0 / sum((variance / total) ** 2 / freedom for variance, freedom in known)
        return t_quantile(1.0 - risk, joined) * math.sqrt(total)

    def around(self, log: float) -> tuple[float, float] | None:
        """Return the bounds of exp(log)."""
        half = self.half_width()
        if half is None:
            return None
        return math.exp(max(log - half, -LARGEST_LOG)), math.exp(min(log + half, LARGEST_LOG))
