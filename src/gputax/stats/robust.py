"""Second opinions on a mean: Hodges-Lehmann, a bootstrap, a slope test and outlier fences."""

from __future__ import annotations

import math

import numpy as np

from gputax.stats.distributions import t_two_sided_p
from gputax.stats.inputs import FloatArray
from gputax.stats.series import ROUNDING, batch_starts

BISECTIONS = 50
LISTED_UP_TO = 100


def hodges_lehmann(values: FloatArray) -> float:
    """Return the median of the averages of any two values, or of one with itself: outliers hardly move it.

    10 000 pairs have 50 million averages, so those of a long series are counted by bisection and never listed
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
    """Return the positions outside Tukey's outer fences (3 interquartile ranges): to show, never to drop."""
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
