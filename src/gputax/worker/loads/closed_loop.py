"""The next batch starts when the previous one is done: `saturate`, a duet's slots, and a tenant that never ends."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, closing

from gputax.errors import UsageError
from gputax.plan.cells import Load
from gputax.worker.engines.engine import Engine, KeepsInFlight, awake
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
    if load.in_flight > 1:
        _overlapped(engine, area, load, recording, observe)
        return
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


def _overlapped(engine: Engine, area: SampleArea, load: Load, recording: Recording, observe: Observe | None) -> None:
    """Keep several runs in flight; a run's time begins when it is handed over, so it contains its wait for the others.

    A launch-and-wait loop leaves the device idle between two runs, and a limiter that only reacts to a busy device
    never acts.
    """
    if not isinstance(engine, KeepsInFlight):
        raise UsageError(
            "this engine runs one batch after the other: it cannot keep several in flight",
            next_step="use --engine onnx, or --workload micro:launch; or --in-flight 1",
        )
    batch, clock = load.batch_size, time.perf_counter_ns
    last_first = max(area.count - batch, 0)
    position = 0
    started: deque[int] = deque()

    def finish() -> None:
        runs.finish()
        start_ns, end_ns = started.popleft(), clock()
        recording.add_run(start_ns, end_ns, batch)
        if observe is not None:
            observe(end_ns - start_ns)

    with quiet_interpreter(), closing(engine.in_flight(load.in_flight)) as runs:
        wait_for_release(load.start_at_ns)
        stop_ns = clock() + int(load.min_duration_s * 1e9)
        while recording.count < load.min_queries or clock() < stop_ns:
            while len(started) < load.in_flight:
                started.append(clock())
                runs.submit(position, batch)
                position = position + batch if position + batch <= last_first else 0
            finish()
        while started:
            finish()


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
