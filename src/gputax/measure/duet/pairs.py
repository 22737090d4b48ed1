"""The duet: two warm sides that take turns, pairs in random order; independent of processes, so it can be simulated."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from gputax.errors import CellError
from gputax.measure.sizing import dropped_runs
from gputax.stats.stopping import StopDecision, StopRule, decide

FloatArray = npt.NDArray[np.float64]
# Longest closed-loop slot. Shorter is better: in equal time 500 ms slots gave ±7.7 %, 100 ms ±1.5 %, 20 ms ±0.75 %.
SLOT_SECONDS = (0.0, 0.01, 0.03, 0.1)
PILOT_PAIRS_PER_SLOT = 8
MAX_LOST_PAIRS = 3
INTERRUPTED = "interrupted"
Clock = Callable[[], float]


@dataclass(frozen=True)
class Slot:
    """Half of a pair: `runs` counted runs after `dropped` uncounted ones."""

    runs: int
    dropped: int


class Side(Protocol):
    """One environment with a warm worker, real or simulated."""

    def run_slot(self, slot: Slot, seed: int) -> FloatArray:
        """Run one half of a pair; returns the latency in ns of each counted query. Same seed, same queries."""
        ...

    def restart(self) -> None:
        """Replace the worker with a new one and warm it up."""
        ...


@dataclass(frozen=True)
class Pair:
    """Both halves of one pair."""

    a_ns: FloatArray
    b_ns: FloatArray
    b_first: bool
    time_s: float
    restart: int

    @functools.cached_property
    def log_ratio(self) -> float:
        """ln(mean B / mean A); cached, because the width is checked after every pair."""
        return math.log(self.b_ns.mean() / self.a_ns.mean())


@dataclass(frozen=True)
class DuetPlan:
    """What is fixed before the first pair."""

    rule: StopRule
    restart_every_s: float
    seed: int = 7


@dataclass
class DuetData:
    """The pairs of one duet, and the events during it."""

    slot: Slot
    pairs: list[Pair] = field(default_factory=list)
    lost_pairs: list[str] = field(default_factory=list)
    restarts: int = 0
    seconds: float = 0.0
    stopped_because: str = ""

    def log_ratios(self) -> FloatArray:
        """Return ln(mean B / mean A) of each pair."""
        return np.array([pair.log_ratio for pair in self.pairs])


# (pairs so far, decision) after each pair
OnPair = Callable[[DuetData, StopDecision], None]


def slot_candidates(call_s: float) -> list[Slot]:
    """Return the slot lengths for a pilot to choose from: one request up to about 100 ms."""
    dropped = dropped_runs(call_s)
    lengths = {max(1, round(seconds / call_s)) for seconds in SLOT_SECONDS}
    return [Slot(runs, dropped) for runs in sorted(lengths)]


def choose_slot(a: Side, b: Side, candidates: list[Slot], clock: Clock, chance: random.Random) -> Slot:
    """Return the slot whose interval shrinks fastest per second; its pilot pairs are not used again."""
    if len(candidates) == 1:
        return candidates[0]

    def cost(slot: Slot) -> float:
        started = clock()
        pairs = [_pair(a, b, slot, chance, number, 0, clock) for number in range(PILOT_PAIRS_PER_SLOT)]
        logs = [pair.log_ratio for pair in pairs]
        seconds = (clock() - started) / PILOT_PAIRS_PER_SLOT
        # The median absolute deviation: a single stall of the host must not decide between the slots.
        spread = float(np.median(np.abs(np.array(logs) - np.median(logs))))
        return spread * math.sqrt(seconds)

    return min(candidates, key=cost)


def run_duet(
    a: Side,
    b: Side,
    slot: Slot,
    plan: DuetPlan,
    clock: Clock,
    on_pair: OnPair,
    halted: Callable[[], bool] = lambda: False,
) -> DuetData:
    """Measure pairs until the interval is narrow enough or the time is over.

    If halted, it keeps the pairs measured so far if there are enough. The overhead is not shown while it runs, so
    stopping early does not select a result.
    """
    chance = random.Random(plan.seed)
    data = DuetData(slot)
    started = last_restart = clock()
    while True:
        elapsed_s = clock() - started
        decision = decide([data.log_ratios()], plan.rule, elapsed_s)
        if data.pairs:
            on_pair(data, decision)
        enough = len(data.pairs) >= plan.rule.pilot_pairs
        if decision.stop or (enough and halted()):
            data.seconds, data.stopped_because = elapsed_s, decision.reason if decision.stop else INTERRUPTED
            return data
        if halted():
            raise KeyboardInterrupt
        try:
            if clock() - last_restart >= plan.restart_every_s:
                _restart(a, b, data)
                last_restart = clock()
            data.pairs.append(_pair(a, b, slot, chance, len(data.pairs), data.restarts, clock))
        except CellError as error:
            # Half a pair is useless. Both sides are restarted, so that both are equally fresh.
            data.lost_pairs.append(error.what)
            if len(data.lost_pairs) > MAX_LOST_PAIRS:
                raise
            _restart(a, b, data)
            last_restart = clock()


def _restart(a: Side, b: Side, data: DuetData) -> None:
    a.restart()
    b.restart()
    data.restarts += 1


def _pair(a: Side, b: Side, slot: Slot, chance: random.Random, number: int, restart: int, clock: Clock) -> Pair:
    b_first = chance.random() < 0.5
    time_s = clock()
    if b_first:
        b_ns, a_ns = b.run_slot(slot, number), a.run_slot(slot, number)
    else:
        a_ns, b_ns = a.run_slot(slot, number), b.run_slot(slot, number)
    return Pair(a_ns, b_ns, b_first, time_s, restart)
