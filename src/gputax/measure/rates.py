"""Find the server's arrival rate: a safe one by stepping down, or the peak by bracketing with repeated probes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gputax.errors import CellError
from gputax.text import digits

# At 70 % load a queue of constant service times stays short; above 80 % its tail grows without warning.
FIRST_SHARE = 0.7
STEP_DOWN = 0.75
MAX_STEPS = 6
GROW = 1.3
MAX_GROWTH_STEPS = 24
PROBES_PER_RATE = 3
PEAK_PRECISION = 1.05

# (rate_per_s, repeat) -> whether every condition was met at this rate
Probe = Callable[[float, int], bool]


@dataclass(frozen=True)
class RateSearch:
    """The rate that was found and every probe, for the record."""

    rate_per_s: float
    probes: tuple[tuple[float, bool], ...]
    first_failing_per_s: float | None = None


def find_rate(capacity_per_s: float, probe: Probe) -> RateSearch:
    """Step down from 70 % of the capacity until one probe holds."""
    probes: list[tuple[float, bool]] = []
    rate = FIRST_SHARE * capacity_per_s
    for _ in range(MAX_STEPS):
        holds = probe(rate, 0)
        probes.append((rate, holds))
        if holds:
            return RateSearch(rate, tuple(probes))
        rate *= STEP_DOWN
    raise CellError(
        f"no server rate down to {digits(rate / STEP_DOWN, 3)}/s kept the latency bound",
        next_step="raise the bound with --bound-ms, or give a rate with --qps",
    )


def find_peak(capacity_per_s: float, probe: Probe) -> RateSearch:
    """Return the highest rate that holds in the majority of repeated probes, bracketed to 5 %.

    LoadGen's own FindPeakPerformance judges each rate once; it returned a rate whose own run was INVALID.
    """
    probes: list[tuple[float, bool]] = []

    def holds(rate: float) -> bool:
        wins = losses = 0
        for repeat in range(PROBES_PER_RATE):
            won = probe(rate, repeat)
            probes.append((rate, won))
            wins, losses = wins + won, losses + (not won)
            if 2 * max(wins, losses) > PROBES_PER_RATE:
                break
        return wins > losses

    low, high = _bracket(FIRST_SHARE * capacity_per_s, holds)
    while high / low > PEAK_PRECISION:
        middle = (low * high) ** 0.5
        if holds(middle):
            low = middle
        else:
            high = middle
    return RateSearch(low, tuple(probes), high)


def _bracket(rate: float, holds: Callable[[float], bool]) -> tuple[float, float]:
    if holds(rate):
        for _ in range(MAX_GROWTH_STEPS):
            if not holds(rate * GROW):
                return rate, rate * GROW
            rate *= GROW
        raise CellError(f"the server kept the latency bound even at {digits(rate, 3)}/s; there is no peak to bracket")
    for _ in range(MAX_GROWTH_STEPS):
        if holds(rate / GROW):
            return rate / GROW, rate
        rate /= GROW
    raise CellError("no server rate kept the latency bound", next_step="raise the bound with --bound-ms")
