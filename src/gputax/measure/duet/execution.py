"""Carry out a duet: start both sides, A/A control, choose the slot, measure the pairs, judge, write."""

from __future__ import annotations

import dataclasses
import functools
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gputax.errors import Interrupted, PreflightError
from gputax.measure.duet.documents import comparison_of, write_duet
from gputax.measure.duet.judgement import resolution
from gputax.measure.duet.pairs import (
    INTERRUPTED,
    DuetData,
    DuetPlan,
    Slot,
    choose_slot,
    dropped_runs,
    run_duet,
    slot_candidates,
)
from gputax.measure.duet.request import LOADGEN_SLOT_S, DuetRequest
from gputax.measure.duet.sides import CLOSED_LOOPS, SideSpec, WorkerSide
from gputax.measure.orderly_stop import orderly_stop
from gputax.measure.rates import FIRST_SHARE
from gputax.measure.sizing import server_bound, server_load, stream_load
from gputax.places import Places
from gputax.plan.cells import Cell, LoadPlan
from gputax.results.documents.comparison import COMPARISON_NAME, Comparison, Resolution
from gputax.results.store import ResultDirectory
from gputax.stats.stopping import StopDecision, StopRule

# A server near saturation answers any disturbance with a queue; both sides run at half the slower one's capacity.
SERVER_SHARE = FIRST_SHARE * 0.7
MAX_PAIRS = 100_000
CLOSED_LOOP_LEAST_PAIRS = 30
CONTROL_SHARE = 0.3
LEAST_SECONDS = 3.0
LEAST_SECONDS_OF_MANY = 1.0
# Of several operations each gets a few seconds: no time for a pilot of four slots, and for one restart at most.
SLOT_OF_MANY_S = 0.01
LEAST_RESTART_OF_MANY_S = 4.0
RESTARTS_PER_DUET = 4
# A restart takes seconds; in a short duet several would leave no time for pairs (measured: 9 pairs instead of 35).
LEAST_BETWEEN_RESTARTS_S = 6.0
# Where processes differ, an hour of pairs from four of them is no sharper than those four, and only more restarts tell
# whether they do (ResNet-50 on a CPU: 52 of them did not, p 0.78). From 50 on, each batch behind the interval holds
# whole restarts.
MOST_BETWEEN_RESTARTS_S = 30.0
Say = Callable[[str], None]
OnPair = Callable[[DuetData, StopDecision], None]


def execute_duet(request: DuetRequest, directory: Path, say: Say, on_pair: OnPair) -> Comparison:
    """Run the whole duet and leave it on disk."""
    store = ResultDirectory(directory)
    sides: list[WorkerSide] = []
    places = Places(say=say)
    started = time.monotonic()

    def left_s(share: float) -> float:
        """What is left of this share of the time; starting workers and pilots counts, but some pairs there must be."""
        least_s = LEAST_SECONDS if len(request.parts) == 1 else LEAST_SECONDS_OF_MANY
        return max(least_s, started + share * request.max_time_s - time.monotonic())

    control_share = CONTROL_SHARE if len(request.parts) == 1 else 1.0 / (len(request.parts) + 1)
    try:
        say(f"starting {request.a.label}")
        sides.append(_side(request, request.a, places))
        control: DuetData | None = None
        if request.control:
            control = _control(request, sides, places, lambda: left_s(control_share), say, on_pair)
        say(f"starting {request.b.label}")
        sides.append(_side(request, request.b, places))
        a, b = sides[0], sides[-1]
        begin = control_share if request.control else 0.0
        parts: dict[str, DuetData] = {}
        for number, workload in enumerate(request.parts, start=1):
            if number > 1:
                say(workload)
                a.take(workload)
                b.take(workload)
            _refuse_unequal(request, a, b)
            share = begin + (1.0 - begin) * number / len(request.parts)
            parts[workload] = _measured(request, a, b, functools.partial(left_s, share), say, on_pair)
            a.prove()
            b.prove()
            if parts[workload].stopped_because == INTERRUPTED:
                break
        comparison = comparison_of(request, a, b, parts, control)
        write_duet(store, comparison, parts, a, b)
        return comparison
    except KeyboardInterrupt as error:
        raise Interrupted(
            "interrupted before there were pairs enough for an interval: nothing is kept", next_step="run it again"
        ) from error
    finally:
        try:
            for side in sides:
                side.end()
            places.close()
            if (store.path / COMPARISON_NAME).exists():
                for name, text in places.files().items():
                    store.write_text(name, text)
        finally:
            if not (store.path / COMPARISON_NAME).exists():
                store.discard()
            store.close()


def _control(
    request: DuetRequest,
    sides: list[WorkerSide],
    places: Places,
    left_s: Callable[[], float],
    say: Say,
    on_pair: OnPair,
) -> DuetData:
    """Measure A against a second A: whatever difference shows is this machine's own."""
    say(f"A/A control: {request.a.label} against itself")
    twin = _side(request, request.a, places)
    sides.append(twin)
    try:
        return _measured(request, sides[0], twin, left_s, say, on_pair, halfway_counts=False)
    finally:
        twin.end()
        sides.remove(twin)


def _measured(
    request: DuetRequest,
    a: WorkerSide,
    b: WorkerSide,
    left_s: Callable[[], float],
    say: Say,
    on_pair: OnPair,
    *,
    halfway_counts: bool = True,
) -> DuetData:
    """Choose the slot and measure; interrupted, the pairs of a control that is half done are of no use."""
    chance = random.Random(request.seed)
    if request.scenario in CLOSED_LOOPS:
        call_s = max(a.pilot.call_ns, b.pilot.call_ns) / 1e9
        if len(request.parts) == 1:
            say("pilot: which slot is sharpest")
            slot = choose_slot(a, b, slot_candidates(call_s), time.monotonic, chance)
        else:
            slot = Slot(max(1, round(SLOT_OF_MANY_S / call_s)), dropped_runs(call_s))
    else:
        slot = Slot(runs=1, dropped=0)
        _give_loads(request, a, b)
    seconds = left_s()
    # Pairs of a closed loop are cheap and their noise has long tails: 30 of them before any look at the width.
    pilot_pairs = CLOSED_LOOP_LEAST_PAIRS if request.scenario in CLOSED_LOOPS else 10
    rule = StopRule(request.width_percent, MAX_PAIRS, seconds, pilot_pairs=pilot_pairs)
    plan = DuetPlan(rule, restart_every_s=between_restarts_s(seconds, len(request.parts)), seed=request.seed)
    say(f"measuring: {slot.runs} runs a slot, {slot.dropped} dropped")
    if not halfway_counts:
        return run_duet(a, b, slot, plan, time.monotonic, on_pair)
    with orderly_stop("this pair") as halted:
        return run_duet(a, b, slot, plan, time.monotonic, on_pair, halted)


def between_restarts_s(seconds: float, parts: int) -> float:
    """Return how long two workers live in a duet of so many seconds for each of its parts."""
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


def _side(request: DuetRequest, spec: SideSpec, places: Places) -> WorkerSide:
    return WorkerSide(spec, request.scenario, request.batch, request.stall_timeout_s, places)


def _refuse_unequal(request: DuetRequest, a: WorkerSide, b: WorkerSide) -> None:
    differences = _unequal(_equal_parts(a, request), _equal_parts(b, request))
    if differences:
        raise PreflightError(
            "the two sides are not comparable: " + "; ".join(differences),
            where=f"duet {request.a.label} {request.b.label}",
            next_step="make them equal, e.g. with --threads, or compare what differs on purpose with --engine-b",
        )


def _equal_parts(side: WorkerSide, request: DuetRequest) -> dict[str, Any]:
    """Return what must be the same on both sides."""
    facts = side.facts
    keys = ["workload", "device", "threads", "precision", "sample_count", "samples"]
    if not request.injected:
        keys += ["engine", "engine_version", "provider", "device_name", "options", "weights_sha256"]
    return {key: facts.get(key) for key in keys}


def _unequal(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    return [f"{key} is {a[key]!r} on one side and {b[key]!r} on the other" for key in a if a[key] != b[key]]


def machine_resolution(side: SideSpec, seconds: float, say: Say, on_pair: OnPair) -> Resolution:
    """Run an A/A of about this length: two equal workers, so whatever interval remains is this machine's own."""
    request = DuetRequest(side, side, "single-stream", 1, {}, width_percent=0.01, max_time_s=seconds)
    sides: list[WorkerSide] = []
    with Places(say=say) as places:
        try:
            for _ in range(2):
                sides.append(_side(request, side, places))
            return resolution(_measured(request, sides[0], sides[1], lambda: seconds, say, on_pair))
        finally:
            for each in sides:
                each.end()
