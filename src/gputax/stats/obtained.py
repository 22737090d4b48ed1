"""The part of a device that a tenant obtained, over the repeats, and how far it is from what was asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gputax.stats.estimates import Bounds, Unit
from gputax.stats.inputs import FloatArray
from gputax.stats.series import series_mean
from gputax.stats.shared import PROCESS_LUCK, REPEATS_THAT_SHOW_LUCK

# Both the tenant and the one that has the whole device are processes with luck of their own.
LUCK = math.sqrt(2.0) * PROCESS_LUCK


class Obtained(Protocol):
    """A part of the device with its uncertainty."""

    @property
    def value(self) -> float:
        """The part itself."""
        ...

    def bounds(self, alpha: float) -> Bounds:
        """Return the lower and the upper bound, each with risk alpha on its own."""
        ...


@dataclass(frozen=True)
class ObtainedShare:
    """A tenant's rate over that of the whole device, one value for each repeat."""

    ratios: FloatArray

    @property
    def value(self) -> float:
        """The geometric mean over the repeats."""
        return math.exp(float(np.log(self.ratios).mean()))

    def bounds(self, alpha: float) -> Bounds:
        """Return the lower and the upper bound, each with risk alpha on its own; one repeat bounds nothing."""
        if self.ratios.size < 2:
            return 0.0, math.inf
        mean = series_mean(np.log(self.ratios))
        half = max(mean.half_width(alpha), LUCK if self.ratios.size < REPEATS_THAT_SHOW_LUCK else 0.0)
        return math.exp(mean.mean - half), math.exp(min(mean.mean + half, 700.0))


@dataclass(frozen=True)
class ObtainedMemory:
    """What a tenant could allocate over what one with the whole device could, one value for each repeat.

    Nothing here is chance: the bounds are the least and the most that was seen, and one more block that did not fit.
    """

    ratios: FloatArray
    resolution: float
    """The smallest block that was tried, in the same unit."""

    @property
    def value(self) -> float:
        """The mean over the repeats."""
        return float(self.ratios.mean())

    def bounds(self, alpha: float) -> Bounds:
        """Return the least, and the most with one more block."""
        return float(self.ratios.min()), float(self.ratios.max()) + self.resolution


def obtained_share(rates: Mapping[int, float], whole: Mapping[int, float]) -> ObtainedShare | None:
    """Return the share from rates by repeat; None if no repeat has both."""
    common = sorted(rates.keys() & whole.keys())
    if not common:
        return None
    return ObtainedShare(np.array([rates[repeat] / whole[repeat] for repeat in common]))


@dataclass(frozen=True)
class Shortfall:
    """What is missing of the share that was asked for, in percent of it."""

    obtained: Obtained
    asked: float
    unit: Unit = "%"

    @property
    def value(self) -> float:
        """Positive: less was obtained than asked for."""
        return 100.0 * (1.0 - self.obtained.value / self.asked)

    def one_sided(self, alpha: float) -> Bounds:
        """Return the lower and the upper bound, each with risk alpha on its own."""
        low, high = self.obtained.bounds(alpha)
        return 100.0 * (1.0 - high / self.asked), 100.0 * (1.0 - low / self.asked)


@dataclass(frozen=True)
class Excess:
    """What was obtained beyond the share that was asked for, in percent of it: a cap that does not hold."""

    obtained: Obtained
    asked: float
    unit: Unit = "%"

    @property
    def value(self) -> float:
        """Positive: more was obtained than asked for."""
        return 100.0 * (self.obtained.value / self.asked - 1.0)

    def one_sided(self, alpha: float) -> Bounds:
        """Return the lower and the upper bound, each with risk alpha on its own."""
        low, high = self.obtained.bounds(alpha)
        return 100.0 * (low / self.asked - 1.0), 100.0 * (high / self.asked - 1.0)
