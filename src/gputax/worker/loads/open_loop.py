"""Poisson arrivals at one tenant: requests follow the schedule, whether or not the last one is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from gputax.worker.engines.engine import Engine
from gputax.worker.loads.closed_loop import Observe
from gputax.worker.samples import SampleArea

DRAWN_AT_ONCE = 1024
WaitUntil = Callable[[int], bool]
"""Wait for this time of the performance counter; False means stop."""


def arrivals_ns(rate_per_s: float, seed: Sequence[int], start_ns: int) -> Iterator[int]:
    """Yield the endless arrival times of a Poisson process; the same seed gives the same gaps."""
    generator = np.random.default_rng(list(seed))
    last_ns = float(start_ns)
    while True:
        times_ns = last_ns + np.cumsum(generator.exponential(1e9 / rate_per_s, DRAWN_AT_ONCE))
        last_ns = float(times_ns[-1])
        yield from (int(time_ns) for time_ns in times_ns)


def serve_arrivals(
    engine: Engine,
    area: SampleArea,
    batch: int,
    arrivals: Iterator[int],
    wait_until: WaitUntil,
    observe: Observe,
    failed: Callable[[Exception], None],
) -> int:
    """Serve one request after the other and return how many were still waiting at the end.

    Latency counts from the scheduled arrival. Counted from the start of the run, a device that stalls would hide the
    requests that queued behind it (coordinated omission).
    """
    clock, run = time.perf_counter_ns, engine.run
    last_first = max(area.count - batch, 0)
    position = 0
    for scheduled_ns in arrivals:
        if not wait_until(scheduled_ns):
            return _due(scheduled_ns, arrivals, clock())
        try:
            run(position, batch)
            end_ns = clock()
        except Exception as error:
            failed(error)
        else:
            observe(end_ns - scheduled_ns)
        position = position + batch if position + batch <= last_first else 0
    return 0


def _due(first_ns: int, arrivals: Iterator[int], now_ns: int) -> int:
    """Count the requests that had arrived by now, the first included."""
    due, next_ns = 0, first_ns
    while next_ns <= now_ns:
        due += 1
        next_ns = next(arrivals)
    return due
