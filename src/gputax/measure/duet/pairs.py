"""The duet: two sides that take turns, pairs in random order, in rounds with new workers; free of processes."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from gputax.errors import CellError
from gputax.measure.sizing import dropped_runs
from gputax.plan.tokens import LATENCY, TOKEN_SERIES
from gputax.stats.overheads import LEAST_RESTARTS, Blocks
from gputax.stats.verdicts import LOOKS, Looks, looks_for

FloatArray = npt.NDArray[np.float64]
# Shorter slots are sharper: in equal time 500 ms slots gave ±7.7 %, 100 ms ±1.5 %, 20 ms ±0.75 %.
SLOT_S = 0.02
MAX_LOST_PAIRS = 3
INTERRUPTED = "interrupted"
LEAST_PAIRS_OF_A_ROUND = 5
# However short the time is: one pair has no spread.
LEAST_PAIRS = 2
# Fewer pairs than this are not kept after an interrupt.
LEAST_PAIRS_KEPT = 10
# A round lasts at least twice as long as its restart, so that two thirds of the time are pairs; later rounds grow with
# the duet, because once there are enough restarts more pairs from each are worth more.
ROUND_PER_RESTART = 2.0
ROUND_SHARE_OF_DUET = 1.0 / 12.0
LEAST_ROUND_S, MOST_ROUND_S = 0.5, 30.0
Clock = Callable[[], float]


@dataclass(frozen=True)
class Slot:
    """Half of a pair: `runs` counted runs after `dropped` uncounted ones."""

    runs: int
    dropped: int


@dataclass(frozen=True)
class Half:
    """What one half of a pair measured."""

    latency_ns: FloatArray
    """Of each counted query; offline: the time per sample."""
    run_wait_ns: float | None = None
    """How long the worker's threads waited for a CPU during them, where the kernel counts it."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """What a program of the user's used meanwhile: covariates, which no verdict depends on."""
    series: Mapping[str, FloatArray] = field(default_factory=dict)
    """The values of its tokens by series (`plan.tokens`), if there are tokens."""


class Side(Protocol):
    """One environment with a warm worker, real or simulated."""

    def run_slot(self, slot: Slot, seed: int) -> Half:
        """Run one half of a pair. Same seed, same queries."""
        ...


class Sides(Protocol):
    """Both sides and, for the A/A control, perhaps a twin of A."""

    @property
    def a(self) -> Side:
        """The base."""
        ...

    @property
    def b(self) -> Side:
        """The other side."""
        ...

    @property
    def twin(self) -> Side | None:
        """A second A, None without a control."""
        ...

    def begin(self, workload: str) -> Slot:
        """Load a workload into all of them, warm it up, and return its slot."""
        ...

    def restart(self) -> None:
        """Replace all workers with new ones."""
        ...


@dataclass(frozen=True)
class Pair:
    """Both halves of one pair."""

    a_ns: FloatArray
    b_ns: FloatArray
    b_first: bool
    time_s: float
    restart: int
    """The number of the processes that ran it, from 0."""
    a_wait_ns: float | None = None
    b_wait_ns: float | None = None
    a_counters: Mapping[str, int] = field(default_factory=dict)
    b_counters: Mapping[str, int] = field(default_factory=dict)
    a_series: Mapping[str, FloatArray] = field(default_factory=dict)
    b_series: Mapping[str, FloatArray] = field(default_factory=dict)

    @functools.cached_property
    def a_mean_ns(self) -> float:
        """The mean of A's half."""
        return float(self.a_ns.mean())

    @functools.cached_property
    def b_mean_ns(self) -> float:
        """The mean of B's half."""
        return float(self.b_ns.mean())


@dataclass
class DuetData:
    """The pairs of one workload."""

    slot: Slot
    pairs: list[Pair] = field(default_factory=list)

    @property
    def series(self) -> tuple[str, ...]:
        """The values that every half of every pair has: the latency, and those of its tokens."""
        common = [name for name in TOKEN_SERIES if all(self._has(pair, name) for pair in self.pairs)]
        return (LATENCY, *(common if self.pairs else ()))

    @staticmethod
    def _has(pair: Pair, name: str) -> bool:
        return all(name in side and side[name].size for side in (pair.a_series, pair.b_series))

    def blocks(self, series: str = LATENCY) -> Blocks:
        """Return one series of the pairs for the statistics."""
        restart = np.array([pair.restart for pair in self.pairs], dtype=np.int64)
        if series == LATENCY:
            return Blocks.of([pair.a_ns for pair in self.pairs], [pair.b_ns for pair in self.pairs], restart)
        halves = [[pair.a_series[series] for pair in self.pairs], [pair.b_series[series] for pair in self.pairs]]
        return Blocks.of(halves[0], halves[1], restart)


@dataclass
class DuetRounds:
    """All that one duet measured, and how it went."""

    parts: dict[str, DuetData] = field(default_factory=dict)
    control: DuetData | None = None
    lost_pairs: list[str] = field(default_factory=list)
    rounds: int = 0
    seconds: float = 0.0
    looks: Looks = field(default_factory=Looks)
    stopped_because: str = ""

    @property
    def pairs(self) -> int:
        """The pairs of all workloads."""
        return sum(len(data.pairs) for data in self.parts.values())


@dataclass(frozen=True)
class DuetPlan:
    """What is fixed before the first pair."""

    workloads: tuple[str, ...]
    max_time_s: float
    """Starts and restarts included; each workload gets some pairs in any case."""
    seed: int = 7
    spent_s: float = 0.0
    """What starting the first workers took."""
    looks: bool = True
    """Whether a clear verdict ends it early."""
    least_pairs_of_a_round: int = LEAST_PAIRS_OF_A_ROUND


Clear = Callable[[DuetRounds], str]
"""Returns why the duet may stop now, or "": asked after the planned looks only."""
OnPair = Callable[[DuetRounds, float], None]
"""(what there is so far, seconds so far) after each pair."""


def slot_for(call_s: float) -> Slot:
    """Return the closed loop's slot: one request, or about 20 ms of shorter ones."""
    return Slot(max(1, round(SLOT_S / call_s)), dropped_runs(call_s))


def run_duet(
    sides: Sides,
    plan: DuetPlan,
    clock: Clock,
    clear: Clear = lambda rounds: "",
    on_pair: OnPair = lambda rounds, elapsed_s: None,
    halted: Callable[[], bool] = lambda: False,
) -> DuetRounds:
    """Measure rounds of pairs, each with new workers, until a look finds the verdict clear or the time is over.

    If halted, it keeps the pairs measured so far if there are enough.
    """
    return _Duet(sides, plan, clock, on_pair, halted).run(clear)


class _Duet:
    """One run of the loop."""

    def __init__(self, sides: Sides, plan: DuetPlan, clock: Clock, on_pair: OnPair, halted: Callable[[], bool]) -> None:
        self._sides, self._plan, self._clock, self._on_pair, self._halted = sides, plan, clock, on_pair, halted
        self._chance = random.Random(plan.seed)
        self._started_s = clock() - plan.spent_s
        self._restart_s = plan.spent_s
        self._looked = 0
        self.found = DuetRounds()

    def run(self, clear: Clear) -> DuetRounds:
        found, plan = self.found, self._plan
        while True:
            self._round()
            found.rounds += 1
            if found.rounds == 1 and plan.looks:
                found.looks = looks_for(self._affordable_restarts())
            found.seconds = self._elapsed_s()
            found.stopped_because = self._reason(clear)
            if found.stopped_because:
                return found
            self._restart()

    def _reason(self, clear: Clear) -> str:
        found = self.found
        if self._stops_now():
            return INTERRUPTED
        planned = found.looks.at_restarts
        if self._looked < len(planned) and found.rounds >= planned[self._looked]:
            self._looked += 1
            why = clear(found)
            if why:
                return why
        left_s = self._plan.max_time_s - found.seconds
        needed_s = self._restart_s + LEAST_ROUND_S
        return "max time" if left_s < needed_s else ""

    def _stops_now(self) -> bool:
        if not self._halted():
            return False
        if min((len(data.pairs) for data in self.found.parts.values()), default=0) < LEAST_PAIRS_KEPT:
            raise KeyboardInterrupt
        return True

    def _round(self) -> None:
        workloads = self._plan.workloads
        seconds = self._round_s()
        for number, workload in enumerate(workloads):
            slot = self._begin(workload)
            data = self.found.parts.setdefault(workload, DuetData(slot))
            twin = self._sides.twin if number == 0 else None
            if twin is not None and self.found.control is None:
                self.found.control = DuetData(slot)
            end_s = self._clock() + seconds / len(workloads)
            fewest = len(data.pairs) + self._plan.least_pairs_of_a_round
            while self._clock() < end_s or len(data.pairs) < fewest:
                if self._halted() or (self._overtime() and len(data.pairs) >= LEAST_PAIRS):
                    break
                self._measure(data, twin)

    def _measure(self, data: DuetData, twin: Side | None) -> None:
        found, a, b = self.found, self._sides.a, self._sides.b
        control = found.control if twin is not None else None
        try:
            if twin is None or control is None:
                data.pairs.append(self._pair(a, b, data.slot, len(data.pairs)))
            else:
                pair, check = self._triple(a, b, twin, data.slot, len(data.pairs))
                data.pairs.append(pair)
                control.pairs.append(check)
        except CellError as error:
            # Half a pair is useless. All workers are replaced, so that all are equally fresh.
            self._lost(error)
            self._restart()
            self._begin(next(name for name, each in found.parts.items() if each is data))
            found.rounds += 1
        self._on_pair(found, self._elapsed_s())

    def _begin(self, workload: str) -> Slot:
        while True:
            try:
                return self._sides.begin(workload)
            except CellError as error:
                self._lost(error)
                self._restart()

    def _restart(self) -> None:
        begun = self._clock()
        while True:
            try:
                self._sides.restart()
                break
            except CellError as error:
                self._lost(error)
        self._restart_s = self._clock() - begun

    def _lost(self, error: CellError) -> None:
        self.found.lost_pairs.append(error.what)
        if len(self.found.lost_pairs) > MAX_LOST_PAIRS:
            raise error

    def _pair(self, a: Side, b: Side, slot: Slot, number: int) -> Pair:
        b_first = self._chance.random() < 0.5
        time_s = self._clock()
        if b_first:
            second, first = b.run_slot(slot, number), a.run_slot(slot, number)
        else:
            first, second = a.run_slot(slot, number), b.run_slot(slot, number)
        return self._joined(first, second, b_first, time_s)

    def _triple(self, a: Side, b: Side, twin: Side, slot: Slot, number: int) -> tuple[Pair, Pair]:
        """Return A against B and A against its twin, from one slot of each.

        The control so has as many pairs as the question, for the time of half as many. The twin comes before or after
        A and B, so that these two stay neighbours: what is close in time has most in common.
        """
        twin_first = self._chance.random() < 0.5
        time_s = self._clock()
        before = twin.run_slot(slot, number) if twin_first else None
        pair = self._pair(a, b, slot, number)
        check = before if before is not None else twin.run_slot(slot, number)
        half = Half(pair.a_ns, pair.a_wait_ns, pair.a_counters, pair.a_series)
        return pair, self._joined(half, check, twin_first, time_s)

    def _joined(self, a: Half, b: Half, b_first: bool, time_s: float) -> Pair:
        return Pair(
            a.latency_ns, b.latency_ns, b_first, time_s, self.found.rounds, a.run_wait_ns, b.run_wait_ns, a.counters,
            b.counters, a.series, b.series,
        )  # fmt: skip

    def _elapsed_s(self) -> float:
        return self._clock() - self._started_s

    def _overtime(self) -> bool:
        return self._elapsed_s() >= self._plan.max_time_s

    def _round_s(self) -> float:
        """Return how long the next round's pairs last."""
        return round_s(self.found.rounds, self._elapsed_s(), self._plan.max_time_s, self._restart_s)

    def _affordable_restarts(self) -> int:
        """Return how many rounds the time allows, at the pace of the first."""
        elapsed_s, rounds = self._elapsed_s(), 1
        while elapsed_s < self._plan.max_time_s and rounds < LOOKS[-1]:
            elapsed_s += self._restart_s + round_s(rounds, elapsed_s, self._plan.max_time_s, self._restart_s)
            rounds += 1
        return rounds


def round_s(rounds: int, elapsed_s: float, max_time_s: float, restart_s: float) -> float:
    """Return the seconds of pairs in the next round: short enough for the restarts that a verdict needs."""
    wanted_s = max(ROUND_PER_RESTART * restart_s, ROUND_SHARE_OF_DUET * elapsed_s, LEAST_ROUND_S)
    missing = LEAST_RESTARTS + 1 - rounds
    fair_s = (max_time_s - elapsed_s) / missing - restart_s if missing > 0 else max_time_s - elapsed_s
    return max(LEAST_ROUND_S, min(wanted_s, fair_s, MOST_ROUND_S))
