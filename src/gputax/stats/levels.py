"""Pairs inside worker restarts: the interval when restarts differ in speed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from gputax.errors import ResultsError
from gputax.stats.estimates import Unit, f_upper_p, percent_interval, percent_of_log
from gputax.stats.inputs import Better, log_ratios
from gputax.stats.series import SeriesMean, series_mean


@dataclass(frozen=True)
class RestartEstimate:
    """The overhead with restarts as replicates: wider than by pairs, and correct if restarts differ."""

    overhead_percent: float
    ci95_percent: tuple[float, float]
    one_sided95_percent: tuple[float, float]
    restarts: int
    pairs: int
    within_sd_percent: float
    between_sd_percent: float
    """Standard deviation between restarts beyond the noise of their pairs; 0 if there is none."""
    p: float
    """Probability of restart means this far apart if restarts did not matter (analysis of variance)."""
    log_mean: SeriesMean
    unit: Unit = "%"

    @property
    def value(self) -> float:
        """The overhead in percent."""
        return self.overhead_percent

    def one_sided(self, alpha: float) -> tuple[float, float]:
        """Return the lower and the upper bound in percent, each with risk alpha on its own."""
        return percent_interval(self.log_mean.one_sided(alpha))


def restart_estimate(a: ArrayLike, b: ArrayLike, restart: ArrayLike, *, better: Better = "lower") -> RestartEstimate:
    """Return the overhead from one mean per restart; `restart` numbers the restart of each pair."""
    logs = log_ratios(a, b, better)
    labels, group = np.unique(np.asarray(restart), return_inverse=True)
    if group.shape != logs.shape or labels.size < 2:
        raise ResultsError(f"{labels.size} restart(s) for {logs.size} pairs: at least 2 restarts are needed")
    sizes = np.bincount(group).astype(np.float64)
    means = np.bincount(group, weights=logs) / sizes
    residual = logs - means[group]
    within_df = logs.size - labels.size
    within = float(residual @ residual) / within_df if within_df else 0.0
    between = float(sizes @ (means - logs.mean()) ** 2) / (labels.size - 1)
    mean = series_mean(means)
    # Kalibera and Jones: T2^2 = S2^2 - S1^2/r, for unequal sizes with their harmonic mean.
    added = mean.sd**2 - within * float(np.mean(1.0 / sizes))
    return RestartEstimate(
        overhead_percent=percent_of_log(mean.mean),
        ci95_percent=percent_interval(mean.one_sided(0.025)),
        one_sided95_percent=percent_interval(mean.one_sided(0.05)),
        restarts=int(labels.size),
        pairs=logs.size,
        within_sd_percent=100.0 * math.sqrt(within),
        between_sd_percent=100.0 * math.sqrt(max(0.0, added)),
        p=f_upper_p(between / within, labels.size - 1, within_df) if within > 0.0 else 1.0,
        log_mean=mean,
    )
