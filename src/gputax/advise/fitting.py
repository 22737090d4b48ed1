"""Fit one form to log latencies: weighted least squares, with the uncertainty from the repeats and from the form.

Three sources of error are separate. A repeat shifts all its cells alike, because the machine is faster or slower that
minute: cells of one repeat are not independent, and more numbers of tenants do not average that shift away. Beyond it,
cells scatter; that gives each point its weight. The misfit of the form beyond both is one more variance (moments, as in
a random-effects mean), added to every point and every prediction. Data without repeats have only that one, from the
residuals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gputax.advise.forms import LARGEST_CONTENTION, Form
from gputax.stats.estimates import f_upper_p, t_quantile
from gputax.stats.inputs import FloatArray, positive_values

# A handful of repeats says little about its own spread, so each point's variance is shrunk toward the common one, which
# counts as much as this many degrees of freedom.
SHARED_DF = 2.0
STEPS = 60
SMALLEST_STEP = 1e-12


@dataclass(frozen=True)
class Shift:
    """What all cells of one repeat have in common: its variance between repeats, in squared log units."""

    variance: float = 0.0
    freedom: float = 0.0


@dataclass(frozen=True)
class Observed:
    """One number of tenants: the mean of its runs' log latencies."""

    tenants: int
    log_ms: float
    repeats: tuple[int, ...]
    """The repeat of each run."""
    own_variance: float
    """Between runs of this cell beyond the shift of their repeats, in squared log units; 0 if unknown."""
    freedom: float
    """Degrees of freedom of the scatter of its runs."""
    shift: Shift
    """The same for all points of an experiment."""

    @property
    def runs(self) -> int:
        """How many runs it has."""
        return len(self.repeats)

    @property
    def run_variance(self) -> float:
        """The variance between runs."""
        return self.own_variance + self.shift.variance

    @property
    def variance(self) -> float:
        """The variance of the mean without the shift of the repeats."""
        return self.own_variance / self.runs


@dataclass(frozen=True)
class Fit:
    """A form with its fitted parameters and their uncertainty."""

    form: Form
    observed: tuple[Observed, ...]
    theta: tuple[float, ...]
    covariance: FloatArray
    covariance_of_repeats: FloatArray
    """The part of the covariance explained by the scatter of cells."""
    covariance_of_shift: FloatArray
    """What the shifts of the repeats add to the covariance."""
    form_variance: float
    """Variance that the form does not explain, in squared log units."""
    repeats_df: float
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
        of_shift = float(slope @ self.covariance_of_shift @ slope)
        return Uncertainty(
            (
                (of_repeats, self.repeats_df),
                self._new_run(tenants),
                (of_curve - of_repeats + self.form_variance, float(self.spare_points)),
                (of_shift + self.shift.variance, self.shift.freedom),
            )
        )

    @property
    def shift(self) -> Shift:
        """What all cells of a repeat have in common."""
        return self.observed[0].shift

    def _new_run(self, tenants: int) -> tuple[float, float]:
        """Return the scatter of runs there: that of the nearest point, and beyond all points at least the average."""
        nearest = min(self.observed, key=lambda each: abs(math.log(each.tenants / tenants)))
        freedom = min(self.repeats_df, SHARED_DF + nearest.freedom)
        counts = [each.tenants for each in self.observed]
        if min(counts) <= tenants <= max(counts):
            return nearest.own_variance, freedom
        return max(nearest.own_variance, sum(each.own_variance for each in self.observed) / len(counts)), freedom

    def parameter(self, index: int) -> tuple[float, float | None, float | None]:
        """Return a parameter and its 95 % bounds on the scale of the fit."""
        value = self.theta[index]
        if not self.has_interval:
            return value, None, None
        total = float(self.covariance[index, index])
        of_repeats = min(total, float(self.covariance_of_repeats[index, index]))
        half = Uncertainty(
            (
                (of_repeats, self.repeats_df),
                (total - of_repeats, float(self.spare_points)),
                (float(self.covariance_of_shift[index, index]), self.shift.freedom),
            )
        ).half_width()
        if half is None:
            return value, None, None
        return value, max(value - half, self.form.parameters[index].least), value + half


def observe(
    points: Sequence[tuple[int, Sequence[float]]], repeats: Sequence[Sequence[int | None]] = ()
) -> tuple[Observed, ...]:
    """Turn (tenants, latencies of the runs in ms) into points, each with its share of the common spread.

    `repeats` names the repeat of each run; a run without one has a repeat of its own.
    """
    logs = [np.log(positive_values(runs, f"{tenants} tenants", item="run")) for tenants, runs in points]
    alone = iter(range(-1, -1 - sum(each.size for each in logs), -1))
    named = [
        tuple(next(alone) if repeat is None else repeat for repeat in (repeats[at] if repeats else [None] * each.size))
        for at, each in enumerate(logs)
    ]
    scatter = _scatter(logs, named)
    total = sum(freedom for _, freedom in scatter.of_points)
    common = sum(squares for squares, _ in scatter.of_points) / total if total else 0.0
    found = [
        Observed(
            tenants,
            float(each.mean()),
            labels,
            (SHARED_DF * common + squares) / (SHARED_DF + freedom),
            freedom,
            scatter.shift,
        )
        for (tenants, _), each, labels, (squares, freedom) in zip(points, logs, named, scatter.of_points, strict=True)
    ]
    return tuple(sorted(found, key=lambda each: each.tenants))


@dataclass(frozen=True)
class _Scatter:
    """The scatter of runs: of each point (sum of squares and degrees of freedom), and of whole repeats."""

    of_points: tuple[tuple[float, float], ...]
    shift: Shift


def _scatter(logs: Sequence[FloatArray], repeats: Sequence[Sequence[int]]) -> _Scatter:
    """Separate the shifts of repeats from the scatter of cells: an analysis of variance, unbalanced if cells lack.

    If repeats do not differ by more than their cells explain, or cannot be told from them, all scatter is the cells'.
    """
    centred = np.concatenate([each - each.mean() for each in logs])
    sizes = np.array([each.size for each in logs])
    plain = _Scatter(tuple((float(((each - each.mean()) ** 2).sum()), float(each.size - 1)) for each in logs), Shift())
    _, group = np.unique(np.concatenate([np.asarray(each) for each in repeats]), return_inverse=True)
    member = np.eye(int(group.max()) + 1)[group]
    point = np.repeat(np.arange(len(logs)), sizes)
    design = member - (np.eye(len(logs))[point].T @ member / sizes[:, None])[point]
    between_df = int(np.linalg.matrix_rank(design))
    within_df = int(centred.size - len(logs) - between_df)
    if between_df < 1 or within_df < 1:
        return plain
    rest = centred - design @ np.linalg.lstsq(design, centred, rcond=None)[0]
    within = float(rest @ rest) / within_df
    between = (float(centred @ centred) - float(rest @ rest)) / between_df
    # Henderson's third method: a repeat counts as often as it has cells.
    cells = float((design**2).sum()) / between_df
    variance = (between - within) / cells
    if variance <= 0.0:
        return plain
    spread = (between / cells) ** 2 / between_df + (within / cells) ** 2 / within_df
    kept = within_df / (centred.size - len(logs))
    ends = np.cumsum(sizes)
    return _Scatter(
        tuple(
            (float((rest[end - size : end] ** 2).sum()), kept * (size - 1.0))
            for size, end in zip(sizes.tolist(), ends.tolist(), strict=True)
        ),
        Shift(variance, variance**2 / spread),
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
    repeats_df = sum(each.freedom for each in observed) if spread else 0.0
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
        of_shift = _covariance_of_shift(form.slopes(theta, tenants), weights, observed)
    else:
        covariance = of_shift = nothing
    return Fit(
        form,
        tuple(observed),
        tuple(map(float, theta)),
        covariance,
        of_repeats,
        of_shift,
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


def _covariance_of_shift(slopes: FloatArray, weights: FloatArray, observed: Sequence[Observed]) -> FloatArray:
    """Return the covariance of the parameters that comes from shifts which the points have in common."""
    common = np.array([[len({*a.repeats} & {*b.repeats}) / (a.runs * b.runs) for b in observed] for a in observed])
    solve = _covariance(slopes, weights) @ (slopes.T * weights)
    return np.asarray(observed[0].shift.variance * (solve @ common @ solve.T), dtype=np.float64)


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


# A new run is one value, not a mean, so nothing makes it normal: its tails are at least those of this many degrees of
# freedom. Simulated with Pareto latencies: 92 % of new runs inside with more, 94 % with this.
NEW_RUN_DF = 6.0
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

    def half_width(self, risk: float = 0.025, most_df: float = math.inf) -> float | None:
        """Return the half-width of the two-sided interval, with at most `most_df` Welch-Satterthwaite degrees."""
        if self.parts is None:
            return None
        known = [(variance, freedom) for variance, freedom in self.parts if variance > 0.0 and freedom > 0.0]
        if not known:
            return 0.0 if all(variance <= 0.0 for variance, _ in self.parts) else None
        total = sum(variance for variance, _ in known)
        joined = 1.0 / sum((variance / total) ** 2 / freedom for variance, freedom in known)
        return t_quantile(1.0 - risk, min(joined, most_df)) * math.sqrt(total)

    def around(self, log: float) -> tuple[float, float] | None:
        """Return the bounds of exp(log) for a new run."""
        half = self.half_width(most_df=NEW_RUN_DF)
        if half is None:
            return None
        return math.exp(max(log - half, -LARGEST_LOG)), math.exp(min(log + half, LARGEST_LOG))
