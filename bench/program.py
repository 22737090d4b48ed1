"""What measuring a program of the user's adds: a process that does nothing, timed by a worker and by a plain loop."""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

from bench.intervals import median_interval
from gputax.measure.session import WorkerSession
from gputax.measure.view import SilentView
from gputax.places import environment_named
from gputax.plan.cells import Setup
from gputax.plan.own_program import ENGINE, OwnProgram

WORDS = ("true",)
PAIRS = 400
# As many processes in each half: the first after the other side's turn is like the others on both sides.
RUNS = 5


def command_overhead(pairs: int = PAIRS) -> dict[str, Any]:
    """Return by how many microseconds a repetition in a duet is longer than one that a plain loop starts and waits for.

    Both start the same program with posix_spawn and take turns; the median over pairs of halves.
    """
    program = OwnProgram(WORDS, by_process=True)
    setup = Setup(program.name, engine=ENGINE, program=program, sample_count=1, max_batch=1)
    session = WorkerSession(environment_named("bare"), setup, SilentView())
    try:
        differences, plain_us = [], []
        for number in range(pairs):
            measured = float(statistics.median(session.slot(1, RUNS, number * RUNS, 0).durations_ns)) / 1e3
            plain = statistics.median(plain_ns() for _ in range(RUNS)) / 1e3
            plain_us.append(plain)
            differences.append(measured - plain)
    finally:
        session.end()
    return {
        "duet_command_overhead_us": statistics.median(differences),
        "duet_command_overhead_us_ci95": median_interval(differences),
        "duet_command_plain_us": statistics.median(plain_us),
    }


def plain_ns() -> int:
    """Start the program once and wait for it, as anybody would."""
    quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    begun_ns = time.perf_counter_ns()
    os.waitpid(os.posix_spawnp(WORDS[0], list(WORDS), os.environ, file_actions=quiet), 0)
    return time.perf_counter_ns() - begun_ns
