"""What a duet measures and its real sides: workers in environments, running closed-loop slots or short LoadGen runs."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gputax.environments.environment import Described, Evidence
from gputax.errors import CellError, ResultsError, WorkerError
from gputax.measure.duet.pairs import Half, Slot
from gputax.measure.duet.recorded import SideFacts, Spent, of_slot, of_telemetry, side_facts
from gputax.measure.session import WorkerSession, in_parallel
from gputax.measure.sizing import Pilot
from gputax.measure.view import SilentView
from gputax.places import Places, environment_named
from gputax.plan.budgets import Budget
from gputax.plan.cells import Load, Setup
from gputax.plan.driver import driver_choice
from gputax.plan.environment import PROXY, EnvironmentName
from gputax.plan.notices import Notice
from gputax.plan.options import EnvironmentOptions
from gputax.plan.workloads import is_micro
from gputax.results.columns import latencies_ns
from gputax.results.token_series import token_series
from gputax.worker.probes.disturbance import (
    BUSY_NEIGHBOURS,
    PAIR_LIMITS,
    beyond,
    in_most,
    reasons,
)

CLOSED_LOOPS = ("single-stream", "multi-stream", "saturate")
# A model's caches and clocks need a second to settle; an operation of microseconds needs a tenth of that. A new worker
# of a known speed only has to be warm.
PILOT_S, MICRO_PILOT_S = 1.0, 0.1
WARM_S, MICRO_WARM_S = 0.3, 0.02
# For LoadGen slots: the load of one slot, by its seed.
LoadForSeed = Callable[[int], Load]


@dataclass(frozen=True)
class SideSpec:
    """Definition of one side of the duet."""

    label: str
    environment: str
    setup: Setup
    options: EnvironmentOptions = field(default_factory=EnvironmentOptions)


class WorkerSide:
    """One environment with a warm worker."""

    def __init__(
        self, spec: SideSpec, scenario: str, batch: int, stall_timeout_s: float = 0.0, places: Places | None = None
    ) -> None:
        self.spec = spec
        self._scenario = scenario
        self._batch = batch
        self._stall_timeout_s = stall_timeout_s
        self._environment = environment_named(spec.environment, driver_choice(spec.setup), places, spec.options)
        self._evidence = Evidence()
        self._others_percent: list[float] = []
        self._beyond: list[list[Notice]] = []
        self._pilots: dict[str, Pilot] = {}
        self._loaded = ""
        self.load_for: LoadForSeed | None = None
        self._spent: dict[str, Spent] = {}
        self._resources: list[dict[str, Any]] = []
        self._load_s: list[float] = []
        self._worker: WorkerSession | None = None
        self.answered = self.failed = 0
        """Requests to a server: those that succeeded, and those that did not and are in no pair."""

    @property
    def _session(self) -> WorkerSession:
        if self._worker is None:
            raise WorkerError("this side has no worker", where=f"side {self.spec.label}")
        return self._worker

    @property
    def facts(self) -> dict[str, Any]:
        """The configuration that the worker actually loaded."""
        return self._session.facts

    @property
    def described(self) -> Described:
        """The worker's description of its environment."""
        return self._session.described

    @property
    def others_percent_of_core(self) -> float:
        """Load of other processes on this side's CPUs: the median over restarts, in the seconds before the pairs.

        Creating a pod is such a load for a moment. The work of a proxy does not count as other load.
        """
        return 0.0 if self._behind_proxy else statistics.median(self._others_percent)

    @property
    def disturbed(self) -> tuple[str, ...]:
        """Why the machine was not quiet enough even for pairs: beyond the limits in more than half of the pilots."""
        return reasons(in_most(self._beyond))

    @property
    def _behind_proxy(self) -> bool:
        return PROXY in EnvironmentName.parse(self.spec.environment).layers

    def recorded(self, workload: str) -> SideFacts:
        """Return what this side recorded that may explain why it is slower or faster."""
        return side_facts(self.facts, self.described, self._resources, self._load_s, self._spent.get(workload, Spent()))

    def evidence(self) -> Evidence:
        """The last evidence that the environment was active."""
        return self._evidence

    def prove(self) -> None:
        """Collect the evidence for this worker; raise if the layer is not proven."""
        self._resources.append(self._session.resources())
        self._evidence = self._session.evidence()
        if not self._evidence.active:
            raise ResultsError(
                f"INVALID: {self.spec.environment} was not active: {self._evidence.why_not}",
                where=f"side {self.spec.label}",
                next_step="nothing was kept: a layer without evidence gives no result",
            )

    def start(self) -> None:
        """Start a worker: where a process lands in memory and on cores varies between starts."""
        self._worker = WorkerSession(self._environment, self.spec.setup, SilentView(), self._stall_timeout_s)
        self._loaded = self.spec.setup.workload
        self._load_s.append(float(self._worker.facts.get("prepare_s") or 0.0))

    def begin(self, workload: str) -> Pilot:
        """Load a workload unless it is loaded, and warm it up; returns the speed that was seen the first time."""
        if workload != self._loaded:
            self._session.prepare(dataclasses.replace(self.spec.setup, workload=workload))
            self._loaded = workload
        first_s, again_s = (MICRO_PILOT_S, MICRO_WARM_S) if is_micro(workload) else (PILOT_S, WARM_S)
        seconds = again_s if workload in self._pilots else first_s
        pilot = self._session.pilot(self._batch, seconds)
        observed = self._session.pilot_observation
        # The kernel counts CPU time in steps of 10 ms: two of them say nothing about the machine.
        if observed is not None and seconds >= MICRO_PILOT_S:
            busy = (each.value for each in observed.notices if each.code == BUSY_NEIGHBOURS)
            self._others_percent.append(next(busy, None) or 0.0)
            expected = (BUSY_NEIGHBOURS,) if self._behind_proxy else ()
            self._beyond.append(beyond(observed.telemetry, PAIR_LIMITS, expected))
        return self._pilots.setdefault(workload, pilot)

    def single_pilot(self) -> Pilot:
        """Warm up with single requests, for the server's bound."""
        return self._session.pilot(1)

    def run_slot(self, slot: Slot, seed: int) -> Half:
        """Run one half of a pair."""
        if self.load_for is not None:
            observation = self._session.apply(self.load_for(seed))
            self._add(of_telemetry(observation.telemetry, len(observation.columns["end_ns"]), observation.elapsed_s))
            if self._scenario == "offline":
                columns = observation.columns
                span_ns = float(columns["end_ns"].max() - columns["start_ns"].min())
                return Half(np.array([span_ns / columns["samples"].sum()]))  # ns per sample: one over the throughput
            columns = observation.columns
            latency_ns = latencies_ns(self._scenario, columns).astype(np.float64)
            self._count(latency_ns.size, len(columns["end_ns"]) - latency_ns.size)
            return Half(latency_ns, series=token_series(self._scenario, columns))
        runs = slot.dropped + slot.runs
        measured = self._session.slot(self._batch, runs, seed * runs, slot.dropped)
        self._add(of_slot(measured))
        self._count(measured.durations_ns.size, measured.failed)
        durations_ns = measured.durations_ns.astype(np.float64)
        return Half(durations_ns, measured.run_wait_ns, measured.counters, measured.series)

    def _count(self, answered: int, failed: int) -> None:
        self.answered += answered
        self.failed += failed
        if not answered:
            raise CellError(
                f"all {failed} requests of a slot failed", where=f"side {self.spec.label}",
                next_step=f"see why: gputax run --engine {self.spec.setup.engine.partition(',')[0]}",
            )  # fmt: skip

    @property
    def error_rate(self) -> float:
        """The share of requests that failed."""
        return self.failed / max(1, self.answered + self.failed)

    def _add(self, spent: Spent) -> None:
        self._spent[self._loaded] = self._spent.get(self._loaded, Spent()).plus(spent)

    def leave(self) -> None:
        """Collect the evidence of a worker that is about to be replaced, and stop it."""
        if self._worker is not None and self._worker.usable:
            self.prove()
        self.end()

    def end(self) -> None:
        """Stop the worker, if there is one."""
        if self._worker is not None:
            self._worker.end()


class WorkerSides:
    """A, B and, for the A/A control, a twin of A; all of them are stopped, whatever happens."""

    def __init__(self, a: WorkerSide, b: WorkerSide, twin: WorkerSide | None, slot_of: SlotOf) -> None:
        self.a, self.b, self.twin = a, b, twin
        self._slot_of = slot_of
        self._slots: dict[str, Slot] = {}

    @property
    def all(self) -> tuple[WorkerSide, ...]:
        """The sides that are there."""
        return (self.a, self.b) if self.twin is None else (self.a, self.b, self.twin)

    def start(self) -> None:
        """Start all workers at once: loading is most of the time, and no pair is measured meanwhile."""
        in_parallel([side.start for side in self.all], self.end)

    def restart(self) -> None:
        """Replace all workers."""
        for side in self.all:
            side.leave()
        self.start()

    def begin(self, workload: str) -> Slot:
        """Load a workload and warm it up, one side after the other; returns its slot, which never changes."""
        pilots = [side.begin(workload) for side in self.all]
        if workload not in self._slots:
            self._slots[workload] = self._slot_of(self, workload, pilots)
        return self._slots[workload]

    def prove(self) -> None:
        """Collect the evidence of both sides; raise if a layer is not proven."""
        self.a.prove()
        self.b.prove()

    def end(self) -> None:
        """Stop all workers."""
        for side in self.all:
            side.end()

    def __enter__(self) -> WorkerSides:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


SlotOf = Callable[[WorkerSides, str, list[Pilot]], Slot]
"""Returns the slot of a workload from the pilots of A, B and perhaps the twin."""


# Seconds of one LoadGen slot: its 31 ms of fixed cost are then 2 %.
LOADGEN_SLOT_S = 1.5


@dataclass(frozen=True)
class DuetRequest:
    """What the user asked for."""

    a: SideSpec
    b: SideSpec
    scenario: str
    batch: int
    budgets: dict[str, Budget]
    width_percent: float | None
    """Stop at this half-width of the intervals that decide; None: stop when the verdict is clear."""
    max_time_s: float
    control: bool = True
    seed: int = 7
    stall_timeout_s: float = 0.0
    command: str = ""
    injected: bool = False
    """The engines differ on purpose (`--engine-b`): that difference is what is tested."""
    named: frozenset[str] = frozenset()
    """The metrics named by a budget; they must be judged."""
    workloads: tuple[str, ...] = ()
    """Several operations of `micro`, which share the time; the sides are set up for the first."""
    notices: tuple[Notice, ...] = ()
    """What is wrong with the request itself, such as a budget for a layer that neither side has."""
    accept_disturbed: bool = False
    """Verdicts stand although the machine was disturbed; the label stays."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The workloads to measure, in order."""
        return self.workloads or (self.a.setup.workload,)
