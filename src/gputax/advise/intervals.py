"""Join independent sources of error, each known to its own degrees of freedom, into one interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gputax.stats.distributions import t_quantile

# Beyond a factor of e^100 nobody asks how much, and exp() would overflow at 710.
LARGEST_LOG = 100.0


@dataclass(frozen=True)
class Uncertainty:
    """Variances of a sum, each with its degrees of freedom; None: nothing is known."""

    parts: tuple[tuple[float, float], ...] | None

    @staticmethod
    def unknown() -> Uncertainty:
        """Return that of a number which nothing checks."""
        return Uncertainty(None)

    def with_parts_of(self, other: Uncertainty) -> Uncertainty:
        """Return that of the sum of both."""
        if self.parts is None or other.parts is None:
            return Uncertainty.unknown()
        return Uncertainty((*self.parts, *other.parts))

    def half_width(self, risk: float = 0.025) -> float | None:
        """Return the half-width of the two-sided interval, by Welch's and Satterthwaite's degrees of freedom."""
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
