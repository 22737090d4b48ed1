"""Carry out a duet: start both sides, A/A control, choose the slot, measure the pairs, judge, write."""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gputax import __version__
from gputax.errors import Interrupted, PreflightError
from gputax.measure.documents import device_name_of
from gputax.measure.duet import DuetData, DuetPlan, Slot, choose_slot, run_duet, slot_candidates
from gputax.measure.duet_judgement import Question, judge_duet, resolution
from gputax.measure.duet_sides import CLOSED_LOOPS, SideSpec, WorkerSide
from gputax.measure.rates import FIRST_SHARE
from gputax.measure.sizing import server_bound, server_load, stream_load
from gputax.plan.budgets import Budget
from gputax.plan.cells import Cell, LoadPlan
from gputax.plan.claims import claim, device_label
from gputax.plan.engine_spec import parse_engine
from gputax.plan.workload_facts import workload_facts
from gputax.results.comparison import Comparison, Resolution
from gputax.results.comparison import Side as SideRecord
from gputax.results.record import WarningRecord
from gputax.results.store import ResultDirectory, now_text
from gputax.stats.stopping import StopDecision, StopRule

# Seconds of one LoadGen slot: 31 ms of fixed cost are then 2 %.
LOADGEN_SLOT_S = 1.5
# A server near saturation answers any disturbance with a queue; both sides run at half the slower one's capacity.
SERVER_SHARE = FIRST_SHARE * 0.7
MAX_PAIRS = 100_000
CLOSED_LOOP_LEAST_PAIRS = 30
CONTROL_SHARE = 0.3
LEAST_SECONDS = 3.0
RESTARTS_PER_DUET = 4
Say = Callable[[str], None]
OnPair = Callable[[DuetData, StopDecision], None]


@dataclass(frozen=True)
class DuetRequest:
    """What the user asked for."""

    a: SideSpec
    b: SideSpec
    scenario: str
    batch: int
    budgets: dict[str, Budget]
    width_percent: float
    max_time_s: float
    control: bool = True
    seed: int = 7
    stall_timeout_s: float = 0.0
    command: str = ""
    injected: bool = False
    """The engines differ on purpose (`--engine-b`): that difference is the thing under test."""


def execute_duet(request: DuetRequest, directory: Path, say: Say, on_pair: OnPair) -> Comparison:
    """Run the whole duet and leave it on disk."""
    store = ResultDirectory(directory)
    sides: list[WorkerSide] = []
    started = time.monotonic()

    def left_s(share: float) -> float:
        """What is left of this share of the time; starting workers and pilots counts, but some pairs there must be."""
        return max(LEAST_SECONDS, started + share * request.max_time_s - time.monotonic())

    try:
        say(f"starting {request.a.label}")
        sides.append(WorkerSide(request.a, request.scenario, request.batch, request.stall_timeout_s))
        control = _control(request, sides, lambda: left_s(CONTROL_SHARE), say, on_pair) if request.control else None
        say(f"starting {request.b.label}")
        sides.append(WorkerSide(request.b, request.scenario, request.batch, request.stall_timeout_s))
        a, b = sides[0], sides[-1]
        differences = _unequal(_equal_parts(a, request), _equal_parts(b, request))
        if differences:
            raise PreflightError(
                "the two sides are not comparable: " + "; ".join(differences),
                where=f"duet {request.a.label} {request.b.label}",
                next_step="make them equal, e.g. with --threads, or compare what differs on purpose with --engine-b",
            )
        data = _measured(request, a, b, lambda: left_s(1.0), say, on_pair)
        comparison = _comparison(request, a, b, data, control)
        _write(store, comparison, data, a, b)
        return comparison
    except KeyboardInterrupt as error:
        raise Interrupted("interrupted; a duet has no half results", next_step="run it again") from error
    finally:
        for side in sides:
            side.end()
        if not (store.path / "comparison.json").exists():
            store.discard()
        store.close()


def _control(
    request: DuetRequest, sides: list[WorkerSide], left_s: Callable[[], float], say: Say, on_pair: OnPair
) -> DuetData:
    """Measure A against a second A: whatever difference shows is this machine's own."""
    say(f"A/A control: {request.a.label} against itself")
    twin = WorkerSide(request.a, request.scenario, request.batch, request.stall_timeout_s)
    sides.append(twin)
    try:
        return _measured(request, sides[0], twin, left_s, say, on_pair)
    finally:
        twin.end()
        sides.remove(twin)


def _measured(
    request: DuetRequest, a: WorkerSide, b: WorkerSide, left_s: Callable[[], float], say: Say, on_pair: OnPair
) -> DuetData:
    chance = random.Random(request.seed)
    if request.scenario in CLOSED_LOOPS:
        call_s = max(a.pilot.call_ns, b.pilot.call_ns) / 1e9
        say("pilot: which slot is sharpest")
        slot = choose_slot(a, b, slot_candidates(call_s), time.monotonic, chance)
    else:
        slot = Slot(runs=1, dropped=0)
        _give_loads(request, a, b)
    seconds = left_s()
    # Pairs of a closed loop are cheap and their noise has long tails: 30 of them before any look at the width.
    pilot_pairs = CLOSED_LOOP_LEAST_PAIRS if request.scenario in CLOSED_LOOPS else 10
    rule = StopRule(request.width_percent, MAX_PAIRS, seconds, pilot_pairs=pilot_pairs)
    plan = DuetPlan(rule, restart_every_s=seconds / RESTARTS_PER_DUET, seed=request.seed)
    say(f"measuring: {slot.runs} runs a slot, {slot.dropped} dropped")
    return run_duet(a, b, slot, plan, time.monotonic, on_pair)


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


def _equal_parts(side: WorkerSide, request: DuetRequest) -> dict[str, Any]:
    """Return what must be the same on both sides."""
    facts = side.facts
    keys = ["workload", "device", "threads", "precision", "sample_count", "samples"]
    if not request.injected:
        keys += ["engine", "engine_version", "provider", "options", "weights_sha256"]
    return {key: facts.get(key) for key in keys}


def _unequal(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    return [f"{key} is {a[key]!r} on one side and {b[key]!r} on the other" for key in a if a[key] != b[key]]


def _comparison(
    request: DuetRequest, a: WorkerSide, b: WorkerSide, data: DuetData, control: DuetData | None
) -> Comparison:
    facts = workload_facts(request.a.setup.workload)
    engine = parse_engine(request.a.setup.engine).name
    text = claim(
        "saturate" if request.scenario in CLOSED_LOOPS else request.scenario,
        engine,
        str(a.facts["device"]),
        str(a.facts.get("weights", "none")),
        official=False,
        is_mlperf_model=facts.is_mlperf_model,
    )
    question = Question(
        request.a.setup.workload,
        request.scenario,
        request.batch,
        request.a.label,
        request.b.label,
        request.budgets,
        text,
    )
    judged = judge_duet(question, data)
    found: Resolution | None = resolution(control) if control else None
    warnings = [WarningRecord(code=each.code, text=each.text, value=each.value) for each in judged.notices]
    if found and not found.contains_zero:
        warnings.append(
            WarningRecord(
                code="control-failed",
                text="the A/A control saw a difference between two equal sides: do not trust small overheads here",
            )
        )
    return Comparison(
        kind="duet",
        gputax_version=__version__,
        timestamp=now_text(),
        question=f"What does {request.b.label} cost over {request.a.label}?",
        command=request.command,
        sides=(_side(request.a, a), _side(request.b, b)),
        metrics=judged.metrics,
        resolution=found,
        pair_series=(judged.series,),
        settings=_settings(request, data),
        warnings=tuple(warnings),
    )


def _settings(request: DuetRequest, data: DuetData) -> dict[str, Any]:
    return {
        "slot_runs": data.slot.runs,
        "slot_dropped": data.slot.dropped,
        "drop_rule": "the first run of each slot, or a millisecond's worth of shorter runs",
        "closed_loop": request.scenario in CLOSED_LOOPS,
        "loadgen_slot_s": None if request.scenario in CLOSED_LOOPS else LOADGEN_SLOT_S,
        "order": "random within each pair",
        "seed": request.seed,
        "restarts": data.restarts,
        "stop_width_percent": request.width_percent,
        "max_time_s": request.max_time_s,
        "stopped_because": data.stopped_because,
        "seconds": data.seconds,
        "lost_pairs": data.lost_pairs,
    }


def _side(spec: SideSpec, side: WorkerSide) -> SideRecord:
    device = str(side.facts["device"])
    return SideRecord(
        label=spec.label,
        environment=spec.environment,
        device=device,
        device_label=device_label(device, device_name_of(side.described, side.facts)),
        source="measured now",
        format="duet",
        fingerprint={**side.facts, "cpu_allowance": side.described.get("cpu_allowance")},
        evidence=side.evidence(),
    )


def _write(store: ResultDirectory, comparison: Comparison, data: DuetData, a: WorkerSide, b: WorkerSide) -> None:
    store.write_json("environment-a.json", a.described)
    store.write_json("environment-b.json", b.described)
    store.write_samples(
        "pairs.parquet",
        {
            "time_ns": np.array([int(pair.time_s * 1e9) for pair in data.pairs], dtype=np.int64),
            "b_first": np.array([pair.b_first for pair in data.pairs], dtype=np.int64),
            "restart": np.array([pair.restart for pair in data.pairs], dtype=np.int64),
            "a_mean_ns": np.array([round(pair.a_ns.mean()) for pair in data.pairs], dtype=np.int64),
            "b_mean_ns": np.array([round(pair.b_ns.mean()) for pair in data.pairs], dtype=np.int64),
        },
    )
    for name, blocks in (("a", [pair.a_ns for pair in data.pairs]), ("b", [pair.b_ns for pair in data.pairs])):
        store.write_samples(
            f"samples-{name}.parquet",
            {
                "pair": np.repeat(np.arange(len(blocks)), [block.size for block in blocks]),
                "latency_ns": np.rint(np.concatenate(blocks)).astype(np.int64),
            },
        )
    store.write_text("comparison.json", comparison.model_dump_json(indent=2) + "\n")


def machine_resolution(side: SideSpec, seconds: float, say: Say, on_pair: OnPair) -> Resolution:
    """Run an A/A of about this length: two equal workers, so whatever interval remains is this machine's own."""
    request = DuetRequest(side, side, "single-stream", 1, {}, width_percent=0.01, max_time_s=seconds)
    sides: list[WorkerSide] = []
    try:
        for _ in range(2):
            sides.append(WorkerSide(side, request.scenario, request.batch))
        return resolution(_measured(request, sides[0], sides[1], lambda: seconds, say, on_pair))
    finally:
        for each in sides:
            each.end()
