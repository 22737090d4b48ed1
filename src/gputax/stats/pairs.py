"""The overhead of B over A from interleaved pairs: estimate, interval, cross-checks and notices."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from gputax.errors import ResultsError
from gputax.stats.estimates import Unit, percent_interval, percent_of_log, t_two_sided_p
from gputax.stats.inputs import Better, FloatArray, log_ratios
from gputax.stats.series import ROUNDING, SeriesMean, batch_starts, series_mean

RESAMPLES = 10_000
# Below this the bootstrap is far too narrow (at 5 pairs by a third) and would raise false alarms as a cross-check.
BOOTSTRAP_FROM_PAIRS = 10
# Order and drift are tested in every cell, so a notice needs a stricter level than the usual 0.05.
NOTICE_P = 0.01


@dataclass(frozen=True)
class OrderEffect:
    """How much larger the overhead looks when B runs second than when it runs first."""

    percent: float
    p: float
    pairs_b_second: int
    pairs_b_first: int


@dataclass(frozen=True)
class Drift:
    """How much the overhead changed from the first pair to the last."""

    percent: float
    p: float


@dataclass(frozen=True)
class PairedEstimate:
    """The overhead with everything needed to check it."""

    overhead_percent: float
    ci95_percent: tuple[float, float]
    one_sided95_percent: tuple[float, float]
    """The lower and the upper bound with a risk of 5 % each: used for the verdict."""
    pairs: int
    effective_pairs: float
    sd_percent: float
    """Standard deviation of ln(B/A), times 100."""
    lag1: float
    inflation: float
    hodges_lehmann_percent: float
    bootstrap_ci95_percent: tuple[float, float] | None
    order_effect: OrderEffect | None
    drift: Drift | None
    outlier_pairs: tuple[int, ...]
    notices: tuple[str, ...]
    log_mean: SeriesMean
    unit: Unit = "%"

    @property
    def value(self) -> float:
        """The overhead in percent."""
        return self.overhead_percent

    @property
    def half_width_percent(self) -> float:
        """Half the 95 % interval on the log scale, times 100: depends on the noise, not on the overhead."""
        return 100.0 * self.log_mean.half_width(0.025)

    def one_sided(self, alpha: float) -> tuple[float, float]:
        """Return the lower and the upper bound in percent, each with risk alpha on its own."""
        return percent_interval(self.log_mean.one_sided(alpha))


def paired_estimate(
    a: ArrayLike,
    b: ArrayLike,
    *,
    better: Better = "lower",
    b_first: ArrayLike | None = None,
    time_s: ArrayLike | None = None,
    resamples: int = RESAMPLES,
    seed: int = 7,
) -> PairedEstimate:
    """Return the overhead of B over A from one metric value per side and pair, in the order of measurement.

    `b_first` says for each pair whether B ran first, `time_s` when it ran; `resamples=0` skips the bootstrap.
    """
    logs = log_ratios(a, b, better)
    mean = series_mean(logs)
    order = _order_effect(logs, _per_pair(b_first, logs.size, "the order"))
    drift = _drift(logs, _per_pair(time_s, logs.size, "the time"))
    middle = hodges_lehmann(logs)
    outliers = severe_outliers(logs)
    booted = None
    if resamples and logs.size >= BOOTSTRAP_FROM_PAIRS:
        booted = bootstrap_mean_interval(logs, resamples=resamples, seed=seed)
    notices = [
        *_correlation_notices(mean),
        *_cross_check_notices(mean, middle, booted),
        *_design_notices(order, drift, b_first is not None, outliers),
    ]
    return PairedEstimate(
        overhead_percent=percent_of_log(mean.mean),
        ci95_percent=percent_interval(mean.one_sided(0.025)),
        one_sided95_percent=percent_interval(mean.one_sided(0.05)),
        pairs=mean.count,
        effective_pairs=mean.effective_count,
        sd_percent=100.0 * mean.sd,
        lag1=mean.lag1,
        inflation=mean.inflation,
        hodges_lehmann_percent=percent_of_log(middle),
        bootstrap_ci95_percent=percent_interval(booted) if booted else None,
        order_effect=order,
        drift=drift,
        outlier_pairs=outliers,
        notices=tuple(notices),
        log_mean=mean,
    )


def _per_pair(values: ArrayLike | None, pairs: int, name: str) -> FloatArray | None:
    if values is None:
        return None
    array = np.asarray(values, dtype=np.float64)
    if array.shape != (pairs,) or not np.isfinite(array).all():
        raise ResultsError(f"{name} must be given as one finite number for each of the {pairs} pairs")
    return array


def _order_effect(logs: FloatArray, b_first: FloatArray | None) -> OrderEffect | None:
    if b_first is None:
        return None
    b_second = 1.0 - (b_first != 0)
    seconds = int(b_second.sum())
    if min(seconds, logs.size - seconds) < 2:
        return None
    difference, p = slope_test(b_second, logs)
    return OrderEffect(percent_of_log(difference), p, seconds, logs.size - seconds)


def _drift(logs: FloatArray, time_s: FloatArray | None) -> Drift | None:
    if logs.size < 3:
        return None
    when = np.arange(logs.size, dtype=np.float64) if time_s is None else time_s
    slope, p = slope_test(when, logs)
    return Drift(percent_of_log(slope * float(when[-1] - when[0])), p)


def _correlation_notices(mean: SeriesMean) -> list[str]:
    if mean.sd == 0.0:
        return ["all pairs are equal: nothing varies, or the clock is too coarse to show it"]
    if mean.inflation > 1.2:
        return [
            f"neighbouring pairs are correlated (lag-1 {mean.lag1:.2f}): the interval is widened "
            f"by a factor of {mean.inflation:.1f}, as if there were {mean.effective_count:.0f} pairs"
        ]
    # Ten independent pairs have a lag-1 below -0.5 once in 15 runs, below -0.79 hardly ever.
    if mean.lag1 < -max(0.5, 2.5 / mean.count**0.5):
        return [f"neighbouring pairs alternate (lag-1 {mean.lag1:.2f}): the waiting side may still be working"]
    return []


def _cross_check_notices(mean: SeriesMean, middle: float, booted: tuple[float, float] | None) -> list[str]:
    if mean.count < BOOTSTRAP_FROM_PAIRS or mean.sd == 0.0:
        return []
    half_width = mean.half_width(0.025)
    found = []
    if abs(middle - mean.mean) > half_width / 2.0:
        found.append(
            f"mean and Hodges-Lehmann disagree ({percent_of_log(mean.mean):.2f} % and "
            f"{percent_of_log(middle):.2f} %): a few pairs dominate the result"
        )
    if booted and mean.inflation <= 1.2:
        low, high = mean.one_sided(0.025)
        if max(abs(booted[0] - low), abs(booted[1] - high)) > half_width / 2.0:
            found.append("t interval and bootstrap disagree: the pairs are far from normal; measure more of them")
    return found


def _design_notices(
    order: OrderEffect | None, drift: Drift | None, order_known: bool, outliers: tuple[int, ...]
) -> list[str]:
    found = []
    if order_known and order is None:
        found.append("nearly all pairs ran in one order: an order effect cannot be separated from the overhead")
    if order and order.p < NOTICE_P:
        found.append(f"order effect: the overhead is {order.percent:+.2f} % when B runs second instead of first")
    if drift and drift.p < NOTICE_P:
        found.append(f"drift: the overhead changed by {drift.percent:+.2f} % during the run (p {drift.p:.2g})")
    if outliers:
        shown = ", ".join(str(i + 1) for i in outliers[:5]) + (" ..." if len(outliers) > 5 else "")
        found.append(f"outliers, kept: {len(outliers)} pairs are far from the others (number {shown})")
    return found


BISECTIONS = 50
LISTED_UP_TO = 100


def hodges_lehmann(values: FloatArray) -> float:
    """Return the median of the averages of any two values, or of one with itself: robust against outliers.

    10 000 pairs have 50 million averages, so for a long series they are counted by bisection instead of listed
    (40 ms).
    """
    if values.size <= LISTED_UP_TO:
        return float(np.median(np.add.outer(values, values)[np.triu_indices(values.size)])) / 2.0
    ordered = np.sort(values)
    averages = ordered.size * (ordered.size + 1) // 2
    lower = _walsh_average(ordered, (averages + 1) // 2)
    return lower if averages % 2 else (lower + _walsh_average(ordered, averages // 2 + 1)) / 2.0


def bootstrap_mean_interval(values: FloatArray, *, resamples: int, seed: int) -> tuple[float, float]:
    """Return the BCa 95 % interval of the mean by resampling pairs, or batches of them in a long series."""
    starts = batch_starts(values.size)
    sums, sizes = np.add.reduceat(values, starts), np.diff(np.append(starts, values.size))
    if np.ptp(sums / sizes) <= ROUNDING:
        # BCa divides by the spread.
        return float(values.mean()), float(values.mean())
    from scipy.stats import bootstrap

    interval = bootstrap(
        (sums, sizes),
        lambda s, n, axis: s.sum(axis) / n.sum(axis),
        paired=True,
        vectorized=True,
        n_resamples=resamples,
        method="BCa",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(interval.low), float(interval.high)


def slope_test(x: FloatArray, y: FloatArray) -> tuple[float, float]:
    """Return the slope of y on x and its two-sided p; with x of 0 and 1 it is the two-sample t-test."""
    centred_x, centred_y = x - x.mean(), y - y.mean()
    spread = float(centred_x @ centred_x)
    if spread == 0.0 or x.size < 3:
        return 0.0, 1.0
    slope = float(centred_x @ centred_y) / spread
    residual = centred_y - slope * centred_x
    se = math.sqrt(float(residual @ residual) / (x.size - 2) / spread)
    if se == 0.0:
        return slope, 1.0 if slope == 0.0 else 0.0
    return slope, t_two_sided_p(slope / se, x.size - 2)


def severe_outliers(values: FloatArray) -> tuple[int, ...]:
    """Return the positions outside Tukey's outer fences (3 interquartile ranges): to report, never to drop."""
    low, high = np.quantile(values, (0.25, 0.75))
    reach = 3.0 * (high - low)
    return tuple(int(i) for i in np.flatnonzero((values < low - reach) | (values > high + reach)))


def _walsh_average(ordered: FloatArray, rank: int) -> float:
    position = np.arange(ordered.size)
    low, high = float(ordered[0]), float(ordered[-1])
    for _ in range(BISECTIONS):
        middle = (low + high) / 2.0
        partners = np.searchsorted(ordered, 2.0 * middle - ordered, side="right") - position
        if int(np.maximum(partners, 0).sum()) >= rank:
            high = middle
        else:
            low = middle
    return high
