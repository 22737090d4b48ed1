"""Run a duet: start both sides, A/A control, choose the slot, measure the pairs, judge, write."""

from __future__ import annotations

import dataclasses
import functools
import random
import time
from collections.abc import Callable
from pathlib import Path

from gputax.errors import Interrupted, PreflightError
from gputax.measure.duet.documents import comparison_of, write_duet
from gputax.measure.duet.judgement import resolution
from gputax.measure.duet.pairs import (
    INTERRUPTED,
    Clock,
    DuetData,
    DuetPlan,
    Slot,
    choose_slot,
    run_duet,
    slot_candidates,
)
from gputax.measure.duet.request import LOADGEN_SLOT_S, DuetRequest
from gputax.measure.duet.sides import CLOSED_LOOPS, SideSpec, WorkerSide
from gputax.measure.experiment import left_in_order, open_new
from gputax.measure.orderly_stop import orderly_stop
from gputax.measure.rates import FIRST_SHARE
from gputax.measure.sizing import dropped_runs, server_bound, server_load, stream_load
from gputax.places import Places
from gputax.plan.cells import Cell, LoadPlan
from gputax.plan.comparability import Purpose, blocking_differences, conditions_of_facts
from gputax.results.documents.comparison import Comparison, Resolution
from gputax.results.reading import COMPARISON
from gputax.stats.stopping import StopDecision, StopRule

# Near saturation any disturbance builds a queue, so both sides run at half the capacity of the slower one.
SERVER_SHARE = FIRST_SHARE * 0.7
MAX_PAIRS = 100_000
CLOSED_LOOP_LEAST_PAIRS = 30
CONTROL_SHARE = 0.3
LEAST_SECONDS = 3.0
LEAST_SECONDS_OF_MANY = 1.0
# Each of several operations gets a few seconds: no time for a pilot of four slots, and for at most one restart.
SLOT_OF_MANY_S = 0.01
LEAST_RESTART_OF_MANY_S = 4.0
RESTARTS_PER_DUET = 4
# A restart takes seconds; in a short duet several would leave no time for pairs (measured: 9 pairs instead of 35).
LEAST_BETWEEN_RESTARTS_S = 6.0
# If processes differ, an hour of pairs from four of them is as uncertain as those four, and only more restarts show
# whether they do (ResNet-50 on a CPU: 52 of them did not, p 0.78). From 50 on, each batch behind the interval holds
# whole restarts.
MOST_BETWEEN_RESTARTS_S = 30.0
Say = Callable[[str], None]
OnPair = Callable[[DuetData, StopDecision], None]


def execute_duet(
    request: DuetRequest, directory: Path, say: Say, on_pair: OnPair, clock: Clock = time.monotonic
) -> Comparison:
    """Run the whole duet and write it to disk."""
    store = open_new(COMPARISON, directory)
    places = Places(say=say)
    with left_in_order(store, places, lambda: store.holds(COMPARISON), _nothing_kept), _Sides(request, places) as sides:
        timetable = _Timetable(request, clock)
        say(f"starting {request.a.label}")
        a = sides.start(request.a)
        control: DuetData | None = None
        if request.control:
            say(f"A/A control: {request.a.label} against itself")
            twin = sides.start(request.a)
            control = _measured(request, a, twin, timetable.control_s, say, on_pair, clock, halfway_counts=False)
            sides.end(twin)
        say(f"starting {request.b.label}")
        b = sides.start(request.b)
        parts: dict[str, DuetData] = {}
        for number, workload in enumerate(request.parts, start=1):
            if number > 1:
                say(workload)
                a.take(workload)
                b.take(workload)
            _refuse_unequal(request, a, b)
            left_s = functools.partial(timetable.part_s, number)
            parts[workload] = _measured(request, a, b, left_s, say, on_pair, clock)
            a.prove()
            b.prove()
            if parts[workload].stopped_because == INTERRUPTED:
                break
        comparison = comparison_of(request, a, b, parts, control)
        write_duet(store, comparison, parts, a, b)
    return comparison


def _nothing_kept() -> Interrupted:
    return Interrupted(
        "interrupted before there were enough pairs for an interval: nothing was kept", next_step="run it again"
    )


class _Sides:
    """The started sides; all of them are stopped, whatever happens."""

    def __init__(self, request: DuetRequest, places: Places) -> None:
        self._request, self._places = request, places
        self._started: list[WorkerSide] = []

    def start(self, spec: SideSpec) -> WorkerSide:
        """Start one side and warm it up."""
        request = self._request
        side = WorkerSide(spec, request.scenario, request.batch, request.stall_timeout_s, self._places)
        self._started.append(side)
        return side

    def end(self, side: WorkerSide) -> None:
        """Stop one side before the others."""
        side.end()
        self._started.remove(side)

    def __enter__(self) -> _Sides:
        return self

    def __exit__(self, *_: object) -> None:
        for side in self._started:
            side.end()


class _Timetable:
    """Time limits of the control and of each part; starts and pilots count, but some pairs are always measured."""

    def __init__(self, request: DuetRequest, clock: Clock) -> None:
        self._parts = len(request.parts)
        self._max_time_s, self._clock, self._started_s = request.max_time_s, clock, clock()
        share = CONTROL_SHARE if self._parts == 1 else 1.0 / (self._parts + 1)
        self._control_share = share if request.control else 0.0

    def control_s(self) -> float:
        """Return the time left for the A/A control."""
        return self._left_s(self._control_share)

    def part_s(self, number: int) -> float:
        """Return the time left for one part, counted from 1."""
        return self._left_s(self._control_share + (1.0 - self._control_share) * number / self._parts)

    def _left_s(self, share: float) -> float:
        least_s = LEAST_SECONDS if self._parts == 1 else LEAST_SECONDS_OF_MANY
        return max(least_s, self._started_s + share * self._max_time_s - self._clock())


def _measured(
    request: DuetRequest,
    a: WorkerSide,
    b: WorkerSide,
    left_s: Callable[[], float],
    say: Say,
    on_pair: OnPair,
    clock: Clock,
    *,
    halfway_counts: bool = True,
) -> DuetData:
    """Choose the slot and measure; if interrupted, the pairs of an unfinished control are discarded."""
    chance = random.Random(request.seed)
    if request.scenario in CLOSED_LOOPS:
        call_s = max(a.pilot.call_ns, b.pilot.call_ns) / 1e9
        if len(request.parts) == 1:
            say("pilot: finding the most precise slot length")
            slot = choose_slot(a, b, slot_candidates(call_s), clock, chance)
        else:
            slot = Slot(max(1, round(SLOT_OF_MANY_S / call_s)), dropped_runs(call_s))
    else:
        slot = Slot(runs=1, dropped=0)
        _give_loads(request, a, b)
    seconds = left_s()
    # Closed-loop pairs are cheap and their noise has long tails: measure 30 before checking the width.
    pilot_pairs = CLOSED_LOOP_LEAST_PAIRS if request.scenario in CLOSED_LOOPS else 10
    rule = StopRule(request.width_percent, MAX_PAIRS, seconds, pilot_pairs=pilot_pairs)
    plan = DuetPlan(rule, restart_every_s=between_restarts_s(seconds, len(request.parts)), seed=request.seed)
    say(f"measuring: {slot.runs} runs a slot, {slot.dropped} dropped")
    if not halfway_counts:
        return run_duet(a, b, slot, plan, clock, on_pair)
    with orderly_stop("this pair") as halted:
        return run_duet(a, b, slot, plan, clock, on_pair, halted)


def between_restarts_s(seconds: float, parts: int) -> float:
    """Return the seconds between restarts in a duet with this many seconds per part."""
    if parts > 1:
        return max(seconds / 2, LEAST_RESTART_OF_MANY_S)
    return min(max(seconds / RESTARTS_PER_DUET, LEAST_BETWEEN_RESTARTS_S), MOST_BETWEEN_RESTARTS_S)


def _give_loads(request: DuetRequest, a: WorkerSide, b: WorkerSide) -> None:
    """Give both sides the same LoadGen runs: same sizes, same rate, and for each pair the same seeds."""
    plan = LoadPlan(duration_s=LOADGEN_SLOT_S, min_samples=1)
    cell = Cell(request.a.setup, request.scenario, request.batch, load=plan)
    slower = min(a.pilot, b.pilot, key=lambda pilot: pilot.rate_per_s)
    if request.scenario == "offline":
        load = stream_load(cell, slower)
    else:
        bound = server_bound(cell, a.single_pilot())
        rate = SERVER_SHARE * slower.rate_per_s
        load = server_load(cell, rate, bound, max(16, int(LOADGEN_SLOT_S * rate)))
    a.load_for = b.load_for = lambda seed: dataclasses.replace(load, seed_offset=seed)


def _refuse_unequal(request: DuetRequest, a: WorkerSide, b: WorkerSide) -> None:
    purpose: Purpose = "engine-b" if request.injected else "duet"
    unequal = blocking_differences(conditions_of_facts(a.facts), conditions_of_facts(b.facts), purpose)
    if unequal:
        raise PreflightError(
            "the two sides are not comparable: " + "; ".join(unequal),
            where=f"duet {request.a.label} {request.b.label}",
            next_step="make them equal, e.g. with --threads, or compare what differs on purpose with --engine-b",
        )


def machine_resolution(
    side: SideSpec, seconds: float, say: Say, on_pair: OnPair, clock: Clock = time.monotonic
) -> Resolution:
    """Run an A/A control of about this length: with two equal workers, the interval is the machine's noise."""
    request = DuetRequest(side, side, "single-stream", 1, {}, width_percent=0.01, max_time_s=seconds)
    with Places(say=say) as places, _Sides(request, places) as sides:
        a, b = sides.start(side), sides.start(side)
        return resolution(_measured(request, a, b, lambda: seconds, say, on_pair, clock))
