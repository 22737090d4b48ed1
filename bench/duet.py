"""How sharp and how honest the duet is on ResNet-50 and this very machine."""

from __future__ import annotations

import contextlib
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gputax import api
from gputax.measure.duet.pairs import DuetPlan, Slot, run_duet, slot_for
from gputax.measure.duet.sides import SideSpec, WorkerSide, WorkerSides
from gputax.plan.cells import Setup
from gputax.results.documents.comparison import Comparison
from gputax.stats.overheads import percentile_overhead

REPEATS = 5
# What people do today: 30 s of one side, then 30 s of the other, and the medians of both.
SIDE_S = 30.0
ENGINE = "onnx:spin=false"
SHORT_S = 30.0
SHORT_DUETS = 20
LIMIT_5_S, LIMIT_1_S = 120.0, 1800.0
# How long one duet takes is luck: 91, 38 and 35 s were seen one after the other on a quiet machine.
DUETS_5 = 5
# Up to half an hour each: one shows whether it is possible at all.
DUETS_1 = 1


def duet_gain(engine: str = ENGINE) -> dict[str, Any]:
    """Return the spread of the apparent A/A difference, one side after the other, over that of the duet.

    Both get the same total time, in alternation, so that both see the same hour of the same machine, and both compare
    medians. The truth is 0.
    """
    setup = Setup("resnet50", engine=engine, sample_count=32, max_batch=1)
    one, other = (WorkerSide(SideSpec("bare", "bare", setup), "single-stream", 1) for _ in range(2))
    sequential, interleaved, held = [], [], 0
    with WorkerSides(one, other, None, lambda sides, workload, pilots: slot_for(pilots[0].call_ns / 1e9)) as sides:
        sides.start()
        for repeat in range(REPEATS):
            sides.restart()  # each process may have a luck of its own; both ways of measuring meet such
            sides.begin("resnet50")
            sequential.append(100 * float(np.log(_block(other) / _block(one))))
            plan = DuetPlan(("resnet50",), 2 * SIDE_S, seed=repeat, looks=False)
            rounds = run_duet(sides, plan, time.monotonic)
            found = percentile_overhead(rounds.parts["resnet50"].blocks(), 0.5).ratio
            interleaved.append(100 * found.centre)
            held += abs(found.centre) <= found.half_width(0.025)
    return {
        "duet_gain": half_range(sequential) / half_range(interleaved),
        "duet_gain_sequential_percent": sequential,
        "duet_gain_duet_percent": interleaved,
        "duet_gain_duet_intervals_that_hold_the_truth": held,
    }


def half_range(values: list[float]) -> float:
    """Return the half-width that holds 95 % of such differences around the truth, which is 0 here."""
    return float(1.96 * np.sqrt(np.mean(np.square(values))))


def _block(side: WorkerSide) -> float:
    """Return the median latency of one side alone for its half of the time."""
    latencies = []
    end = time.monotonic() + SIDE_S
    number = 0
    while time.monotonic() < end:
        latencies.append(side.run_slot(Slot(runs=4, dropped=0), number).latency_ns)
        number += 1
    return float(np.median(np.concatenate(latencies)))


def duet_seconds() -> dict[str, Any]:
    """Return how long A/A duets of ResNet-50 take to pass budgets of 5 % and 1 %, with what they said."""
    found: dict[str, Any] = {}
    for percent, limit_s, count in ((5, LIMIT_5_S, DUETS_5), (1, LIMIT_1_S, DUETS_1)):
        duets = [_duet(f"{percent}%", limit_s, seed=7 + number) for number in range(count)]
        found |= seconds_to_pass(percent, [(float(each.settings["seconds"]), verdict_of(each)) for each in duets])
    return found


def seconds_to_pass(percent: int, duets: list[tuple[float, str]]) -> dict[str, Any]:
    """Return the median time of duets that passed, all times and all verdicts.

    A duet that did not pass took longer than any that did; where it is the middle one, the median is unknown.
    """
    times = [seconds if verdict == "pass" else None for seconds, verdict in duets]
    middle = statistics.median(math.inf if each is None else each for each in times)
    return {
        f"duet_seconds_{percent}_percent": middle if math.isfinite(middle) else None,
        f"duet_seconds_{percent}_percent_each": times,
        f"duet_verdicts_{percent}_percent": [verdict for _, verdict in duets],
    }


def aa_false_verdicts() -> dict[str, Any]:
    """Return how many of 20 short A/A duets fail a budget of 1 %, half of them beside a busy loop."""
    verdicts: list[str] = []
    for number in range(SHORT_DUETS):
        with _busy_loop() if number % 2 else contextlib.nullcontext():
            verdicts.append(verdict_of(_duet("1%", SHORT_S, seed=number)))
    return {"aa_false_verdicts": verdicts.count("fail"), "aa_verdicts": verdicts}


def _duet(budget: str, max_time_s: float, seed: int = 7) -> Comparison:
    with tempfile.TemporaryDirectory() as directory:
        return api.duet(
            "bare", "bare", out=Path(directory) / "duet", engine=ENGINE, budgets=(budget,), max_time_s=max_time_s,
            seed=seed,
        )  # fmt: skip


def verdict_of(comparison: Comparison) -> str:
    """Return the verdict of the whole duet, as documents store it."""
    verdicts = {row.verdict for row in comparison.metrics if row.decides}
    return "fail" if "fail" in verdicts else "pass" if verdicts == {"pass"} else "inconclusive"


@contextlib.contextmanager
def _busy_loop() -> Iterator[None]:
    """Keep one core busy meanwhile."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()
