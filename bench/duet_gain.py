"""How much sharper the duet is than running one side after the other, on ResNet-50 and this very machine."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np

from gputax.measure.duet.judgement import resolution
from gputax.measure.duet.pairs import DuetPlan, Slot, choose_slot, run_duet, slot_candidates
from gputax.measure.duet.sides import SideSpec, WorkerSide
from gputax.plan.cells import Setup
from gputax.stats.stopping import StopRule

REPEATS = 5
# What people do today: 30 s of one side, then 30 s of the other.
SIDE_S = 30.0


def duet_gain(engine: str = "onnx:spin=false") -> dict[str, Any]:
    """Return the spread of the apparent A/A difference, one side after the other, over that of the duet.

    Both get the same total time, in alternation, so that both see the same hour of the same machine. The truth is 0.
    """
    setup = Setup("resnet50", engine=engine, sample_count=32, max_batch=1)
    sides = [WorkerSide(SideSpec("bare", "bare", setup), "single-stream", 1) for _ in range(2)]
    try:
        a, b = sides
        slot = choose_slot(a, b, slot_candidates(a.pilot.call_ns / 1e9), time.monotonic, random.Random(7))
        sequential, interleaved, claimed, held = [], [], [], 0
        for repeat in range(REPEATS):
            for side in sides:
                side.restart()  # each process may have a luck of its own; both ways of measuring meet the same
            sequential.append(100 * np.log(_block(b) / _block(a)))
            rule = StopRule(0.001, 100_000, 2 * SIDE_S)
            data = run_duet(a, b, slot, DuetPlan(rule, 1e9, seed=repeat), time.monotonic, lambda *_: None)
            interleaved.append(100 * float(data.log_ratios().mean()))
            found = resolution(data)
            claimed.append(found.half_width_percent)
            held += found.contains_zero
    finally:
        for side in sides:
            side.end()
    spread, sharp = half_range(sequential), half_range(interleaved)
    return {
        "duet_gain": spread / sharp,
        "duet_gain_sequential_percent": sequential,
        "duet_gain_duet_percent": interleaved,
        "duet_gain_duet_claimed_half_width_percent": claimed,
        "duet_gain_duet_intervals_that_hold_the_truth": held,
    }


def half_range(values: list[float]) -> float:
    """Return the half-width that holds 95 % of such differences around the truth, which is 0 here."""
    return float(1.96 * np.sqrt(np.mean(np.square(values))))


def _block(side: WorkerSide) -> float:
    """Return the mean latency of one side alone for its half of the time."""
    latencies = []
    end = time.monotonic() + SIDE_S
    number = 0
    while time.monotonic() < end:
        latencies.append(side.run_slot(Slot(runs=4, dropped=0), number).mean())
        number += 1
    return float(np.mean(latencies))
