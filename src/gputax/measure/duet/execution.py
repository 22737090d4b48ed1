"""Run a duet: start both sides, measure rounds of pairs with new workers, look, judge, write."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

from gputax.errors import Interrupted, PreflightError
from gputax.measure.duet.documents import comparison_of, questions, write_duet
from gputax.measure.duet.judgement import judged_rows, resolution
from gputax.measure.duet.pairs import Clock, DuetPlan, DuetRounds, OnPair, Slot, run_duet, slot_for
from gputax.measure.duet.sides import CLOSED_LOOPS, LOADGEN_SLOT_S, DuetRequest, SideSpec, WorkerSide, WorkerSides
from gputax.measure.experiment import left_in_order, open_new, orderly_stop
from gputax.measure.sizing import FIRST_SHARE, Pilot, server_bound, server_load, stream_load
from gputax.places import Places
from gputax.plan.cells import Cell, LoadPlan
from gputax.plan.comparability import Purpose, blocking_differences, conditions_of_facts
from gputax.results.documents.comparison import Comparison, Resolution
from gputax.results.reading import COMPARISON

# Near saturation any disturbance builds a queue, so both sides run at half the capacity of the slower one.
SERVER_SHARE = FIRST_SHARE * 0.7
# A pair of LoadGen slots takes three seconds and holds many queries.
LOADGEN_PAIRS_OF_A_ROUND = 2
Say = Callable[[str], None]


def execute_duet(
    request: DuetRequest, directory: Path, say: Say, on_pair: OnPair, clock: Clock = time.monotonic
) -> Comparison:
    """Run the whole duet and write it to disk."""
    store = open_new(COMPARISON, directory)
    places = Places(say=say)
    with left_in_order(store, places, lambda: store.holds(COMPARISON), _nothing_kept):
        begun = clock()
        control = ", and A again for the A/A control" if request.control else ""
        say(f"starting {request.a.label} and {request.b.label}{control}")
        with _started(request, places) as sides:
            plan = DuetPlan(request.parts, request.max_time_s, request.seed, clock() - begun)
            if request.scenario not in CLOSED_LOOPS:
                plan = dataclasses.replace(plan, least_pairs_of_a_round=LOADGEN_PAIRS_OF_A_ROUND)
            say("measuring pairs, with new workers every round")
            with orderly_stop("this pair") as halted:
                rounds = run_duet(sides, plan, clock, lambda found: _clear(request, sides, found), on_pair, halted)
            sides.prove()
            comparison = comparison_of(request, sides.a, sides.b, rounds)
            write_duet(store, comparison, rounds, sides.a, sides.b)
    return comparison


def _nothing_kept() -> Interrupted:
    return Interrupted(
        "interrupted before there were enough pairs for an interval: nothing was kept", next_step="run it again"
    )


def _started(request: DuetRequest, places: Places) -> WorkerSides:
    """Start all sides: a B that does not exist is refused before anything is measured."""

    def side(spec: SideSpec) -> WorkerSide:
        return WorkerSide(spec, request.scenario, request.batch, request.stall_timeout_s, places)

    def slot_of(sides: WorkerSides, workload: str, pilots: list[Pilot]) -> Slot:
        _refuse_unequal(request, sides.a, sides.b)
        if request.scenario in CLOSED_LOOPS:
            return slot_for(max(pilot.call_ns for pilot in pilots) / 1e9)
        _give_loads(request, sides, pilots)
        return Slot(runs=1, dropped=0)

    twin = side(request.a) if request.control else None
    sides = WorkerSides(side(request.a), side(request.b), twin, slot_of)
    try:
        sides.start()
    except BaseException:
        sides.end()
        raise
    return sides


def _clear(request: DuetRequest, sides: WorkerSides, rounds: DuetRounds) -> str:
    """Return why no more pairs are needed, or ""."""
    asked = questions(request, sides.a, sides.b, rounds)
    rows = [row for workload, data in rounds.parts.items() for row in judged_rows(asked[workload], data)]
    if request.width_percent is not None:
        widths = [_half_width(row.ci95_percent) for row in rows if row.decides]
        return "narrow enough" if all(width <= request.width_percent for width in widths) else ""
    deciding = [row.verdict for row in rows if row.decides]
    return "verdict clear" if deciding and "inconclusive" not in deciding else ""


def _half_width(interval: tuple[float | None, float | None] | None) -> float:
    low, high = interval or (None, None)
    return float("inf") if low is None or high is None else (high - low) / 2.0


def _give_loads(request: DuetRequest, sides: WorkerSides, pilots: list[Pilot]) -> None:
    """Give all sides the same LoadGen runs: same sizes, same rate, and for each pair the same seeds."""
    plan = LoadPlan(duration_s=LOADGEN_SLOT_S, min_samples=1)
    cell = Cell(request.a.setup, request.scenario, request.batch, load=plan)
    slower = min(pilots, key=lambda pilot: pilot.rate_per_s)
    if request.scenario == "offline":
        load = stream_load(cell, slower)
    else:
        bound = server_bound(cell, sides.a.single_pilot())
        rate = SERVER_SHARE * slower.rate_per_s
        load = server_load(cell, rate, bound, max(16, int(LOADGEN_SLOT_S * rate)))
    for side in sides.all:
        side.load_for = lambda seed: dataclasses.replace(load, seed_offset=seed)


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
    side: SideSpec,
    seconds: float,
    say: Say,
    on_pair: OnPair,
    clock: Clock = time.monotonic,
    scenario: str = "single-stream",
    batch: int = 1,
) -> Resolution:
    """Run an A/A control of about this length: with two equal workers, the interval is the machine's noise."""
    request = DuetRequest(side, side, scenario, batch, {}, width_percent=None, max_time_s=seconds, control=False)
    begun = clock()
    with Places(say=say) as places, _started(request, places) as sides:
        plan = DuetPlan(request.parts, seconds, spent_s=clock() - begun, looks=False)
        rounds = run_duet(sides, plan, clock, on_pair=on_pair)
        return resolution(rounds.parts[side.setup.workload], rounds)
