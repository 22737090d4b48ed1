"""The tenant: constant inferences, in a closed loop or at Poisson arrivals, on a device that others may use too."""

from __future__ import annotations

import gc
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from gputax.errors import EngineError
from gputax.plan.cells import Setup
from gputax.worker.engines.engine import Engine
from gputax.worker.halt import Halt
from gputax.worker.loads import closed_loop
from gputax.worker.loads.closed_loop import ClockNs, Observe
from gputax.worker.loads.recording import quiet_interpreter
from gputax.worker.preparation import Prepared, prepare
from gputax.worker.samples import SampleArea
from gputax.worker.tenant.info import pod_name, tenant_labels
from gputax.worker.tenant.tally import Tally

if TYPE_CHECKING:
    from gputax.worker.tenant.metrics import TenantMetrics

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
    clock: ClockNs = time.perf_counter_ns,
) -> int:
    """Serve one request after the other and return how many were still waiting at the end.

    Latency counts from the scheduled arrival. Counted from the start of the run, a device that stalls would hide the
    requests that queued behind it (coordinated omission).
    """
    run = engine.run
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


Say = Callable[[str], None]
WARM_UP_RUNS = 3
ERRORS_IN_A_ROW = 10
# A neighbour that briefly takes all memory should not use up ten attempts within a millisecond.
PAUSE_AFTER_ERROR_S = 0.1


@dataclass(frozen=True)
class TenantPlan:
    """The load of one tenant."""

    setup: Setup
    batch: int = 1
    warmup_s: float = 1.0
    duration_s: float = 0.0
    """0: until stopped."""
    rate_per_s: float = 0.0
    """0: a closed loop; otherwise Poisson arrivals."""
    technique: str = ""


@dataclass
class Course:
    """Progress of the tenant; filled while it runs."""

    labels: dict[str, str] = field(default_factory=dict)
    started_ns: int = 0
    """0: nothing is counted yet."""
    ended_ns: int = 0
    unserved: int = 0
    """Arrivals that still waited at the end; none in a closed loop."""

    @property
    def seconds(self) -> float:
        """Time since inferences are counted."""
        if not self.started_ns:
            return 0.0
        return ((self.ended_ns or time.perf_counter_ns()) - self.started_ns) / 1e9


def run_tenant(
    plan: TenantPlan,
    metrics: TenantMetrics,
    course: Course,
    halt: Halt,
    say: Say,
    clock: ClockNs = time.perf_counter_ns,
) -> None:
    """Load, warm up and infer until the duration is over or a halt is requested; the current inference finishes first.

    All of it happens on the calling thread, because a CUDA context belongs to the thread that created it.
    """
    prepared = prepare(plan.setup, say)
    try:
        course.labels = tenant_labels(plan.setup, prepared.facts, plan.technique)
        metrics.introduce(course.labels)
        say(f"running on {course.labels['device_label']}")
        failures = Failures(metrics.tally, halt, say)
        with quiet_interpreter():
            # Scrapes create reference cycles and a tenant may run for days; frozen objects cost no collection time.
            gc.enable()
            _warm(prepared, plan, halt, failures, clock)
            metrics.ready = not halt.ordered
            try:
                _infer(prepared, plan, metrics.tally, course, halt, failures, clock)
            finally:
                course.ended_ns = clock()
                metrics.ready = False
    finally:
        prepared.engine.close()


class Failures:
    """Counts exceptions of the engine, prints the first in full, and gives up after ten in a row."""

    def __init__(self, tally: Tally, halt: Halt, say: Say) -> None:
        self._tally, self._halt, self._say = tally, halt, say
        self._said = False
        self.in_a_row = 0

    def add(self, error: Exception) -> None:
        """Count one; raises EngineError after too many."""
        self._tally.failed()
        self.in_a_row += 1
        if not self._said:
            self._said = True
            traceback.print_exception(error, file=sys.stderr)
            self._say("an inference failed (see above); further failures are only counted")
        if self.in_a_row >= ERRORS_IN_A_ROW:
            raise EngineError(
                f"{self.in_a_row} inferences in a row failed, the last with {type(error).__name__}: {error}",
                where="engine",
                next_step="see the first failure above; `gputax doctor` checks the device and its driver",
            ) from error
        self._halt.wait(PAUSE_AFTER_ERROR_S)


def _warm(prepared: Prepared, plan: TenantPlan, halt: Halt, failures: Failures, clock: ClockNs) -> None:
    """Run without counting until kernels are chosen and caches and clocks are up."""
    warm_ns = clock() + int(plan.warmup_s * 1e9)
    runs = 0

    def going() -> bool:
        return not halt.ordered and (runs < WARM_UP_RUNS or clock() < warm_ns)

    def observe(_: int) -> None:
        nonlocal runs
        runs += 1
        failures.in_a_row = 0

    closed_loop.endless(prepared.engine, prepared.area, plan.batch, going, observe, failures.add, clock)


def _infer(
    prepared: Prepared,
    plan: TenantPlan,
    tally: Tally,
    course: Course,
    halt: Halt,
    failures: Failures,
    clock: ClockNs,
) -> None:
    batch, done = plan.batch, tally.done
    course.started_ns = clock()
    stop_ns = course.started_ns + int(plan.duration_s * 1e9) if plan.duration_s else sys.maxsize

    def going() -> bool:
        return not halt.ordered and clock() < stop_ns

    def observe(latency_ns: int) -> None:
        done(latency_ns, batch)
        failures.in_a_row = 0

    def wait_until(scheduled_ns: int) -> bool:
        halt.wait((min(scheduled_ns, stop_ns) - clock()) / 1e9)
        return going()

    if not plan.rate_per_s:
        closed_loop.endless(prepared.engine, prepared.area, batch, going, observe, failures.add, clock)
        return
    arrivals = arrivals_ns(plan.rate_per_s, arrival_seed(plan.setup.seed, pod_name()), course.started_ns)
    course.unserved = serve_arrivals(
        prepared.engine, prepared.area, batch, arrivals, wait_until, observe, failures.add, clock
    )


def arrival_seed(seed: int, pod: str) -> tuple[int, int]:
    """Return the seed of the arrivals: pods of one Deployment have equal options and must not arrive in lockstep."""
    return seed, zlib.crc32(pod.encode())
