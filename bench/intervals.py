"""How sure a figure is: the 95 % bootstrap interval of a median over pairs, or over restarts and then pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

RESAMPLES = 4000


def median_interval(values: Sequence[float]) -> list[float]:
    """Return the 95 % interval of the median of independent pairs."""
    chosen = np.random.default_rng(7).choice(np.asarray(values), size=(RESAMPLES, len(values)))
    return _middle(np.median(chosen, axis=1))


def grouped_median_interval(groups: Sequence[Sequence[float]]) -> list[float]:
    """Return the 95 % interval of the median where processes may differ by luck: resample groups, then pairs."""
    chance = np.random.default_rng(7)
    arrays = [np.asarray(group) for group in groups]
    medians = []
    for _ in range(RESAMPLES):
        drawn = [arrays[i] for i in chance.integers(len(arrays), size=len(arrays))]
        medians.append(np.median(np.concatenate([chance.choice(group, group.size) for group in drawn])))
    return _middle(np.array(medians))


def _middle(medians: np.ndarray) -> list[float]:
    low, high = np.quantile(medians, (0.025, 0.975))
    return [float(low), float(high)]
