"""The next batch starts when the previous one is done: `saturate`, a duet's slots, and a tenant that never ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from gputax.plan.cells import Load
from gputax.worker.engines.engine import Engine, awake
from gputax.worker.loads.recording import Recording, quiet_interpreter
from gputax.worker.loads.token_times import TokenTimes
from gputax.worker.samples import SampleArea

COLUMNS = ("start_ns", "end_ns", "samples")
MAX_ROWS = 4_000_000
Observe = Callable[[int], None]
"""Called with the nanoseconds of each run, after it was recorded."""
ClockNs = Callable[[], int]


def recording_for(load: Load) -> Recording:
    """Return a recording sized by an estimate of the rows; it grows if the engine is faster."""
    by_hint = int(load.min_duration_s * 1e9 / max(load.expected_latency_ns, 1000) * 2)
    return Recording(COLUMNS, min(max(load.min_queries, by_hint, 1024), MAX_ROWS), 0)


def saturate(
    engine: Engine,
    area: SampleArea,
    load: Load,
    recording: Recording,
    observe: Observe | None = None,
    times: TokenTimes | None = None,
) -> None:
    """Run batches until both the duration and the number of queries are reached; `times` takes those of tokens."""
    batch = load.batch_size
    clock, run = time.perf_counter_ns, engine.run
    last_first = max(area.count - batch, 0)
    position = 0
    with quiet_interpreter(), awake(engine) as program:
        wait_for_release(load.start_at_ns)
        stop_ns = clock() + int(load.min_duration_s * 1e9)
        while recording.count < load.min_queries or clock() < stop_ns:
            start_ns = clock()
            run(position, batch)
            end_ns = clock() if program is None else start_ns + program.last_ns
            recording.add_run(start_ns, end_ns, batch)
            if times is not None:
                times.add(recording.count - 1)
            if observe is not None:
                observe(end_ns - start_ns)
            position = position + batch if position + batch <= last_first else 0


def endless(
    engine: Engine,
    area: SampleArea,
    batch: int,
    going: Callable[[], bool],
    observe: Observe,
    failed: Callable[[Exception], None],
    clock: ClockNs = time.perf_counter_ns,
) -> None:
    """Run batches while `going` returns true; `failed` is called for a run that raises, and may raise to stop."""
    run = engine.run
    last_first = max(area.count - batch, 0)
    position = 0
    while going():
        try:
            start_ns = clock()
            run(position, batch)
            end_ns = clock()
        except Exception as error:
            failed(error)
        else:
            observe(end_ns - start_ns)
        position = position + batch if position + batch <= last_first else 0


def slot(
    engine: Engine,
    area: SampleArea,
    batch: int,
    runs: range,
    dropped: int,
    counted: AbstractContextManager[None],
    times: TokenTimes | None = None,
) -> Recording:
    """Run a fixed number of batches, half of a pair; those after the first `dropped` run inside `counted`.

    The numbers of the runs choose the samples, equal on both sides. `times` takes those of tokens.
    """
    recording = Recording(COLUMNS, len(runs), len(runs) * batch)
    clock, run = time.perf_counter_ns, engine.run
    places = max(area.count // batch, 1)

    def apply(numbers: range) -> None:
        for number in numbers:
            start_ns = clock()
            run(number % places * batch, batch)
            recording.add_run(start_ns, clock() if program is None else start_ns + program.last_ns, batch)
            if times is not None:
                times.add(recording.count - 1)

    with quiet_interpreter(collect=False), awake(engine) as program:
        apply(runs[:dropped])
        with counted:
            apply(runs[dropped:])
    return recording


def wait_for_release(start_at_ns: int) -> None:
    """Sleep until the common start; return at once if it has passed."""
    left_ns = start_at_ns - time.perf_counter_ns()
    if start_at_ns and left_ns > 0:
        time.sleep(left_ns / 1e9)
