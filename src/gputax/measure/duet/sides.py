"""The real sides of a duet: a worker in an environment, running closed-loop slots or short LoadGen runs."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gputax.environments.described import Described
from gputax.environments.evidence import Evidence
from gputax.errors import ResultsError
from gputax.measure.duet.pairs import Slot
from gputax.measure.session import WorkerSession
from gputax.measure.sizing import Pilot
from gputax.measure.summary import latencies_ns
from gputax.measure.view import SilentView
from gputax.places import Places, environment_named
from gputax.plan.cells import Setup
from gputax.plan.driver import driver_choice
from gputax.plan.environment import PROXY, EnvironmentName
from gputax.plan.load import Load
from gputax.plan.micro import is_micro
from gputax.plan.notices import Notice
from gputax.plan.options import EnvironmentOptions
from gputax.worker.probes.disturbance import (
    BUSY_NEIGHBOURS,
    PAIR_LIMITS,
    beyond,
    in_most,
    reasons,
)

CLOSED_LOOPS = ("single-stream", "multi-stream", "saturate")
PILOT_S, MICRO_PILOT_S = 1.0, 0.1
FloatArray = npt.NDArray[np.float64]
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
        self.load_for: LoadForSeed | None = None
        self._session = self._started()
        self.pilot = self._piloted()

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

    def evidence(self) -> Evidence:
        """The last evidence that the environment was active."""
        return self._evidence

    def prove(self) -> None:
        """Collect the evidence for this worker; without it there is no result."""
        self._evidence = self._session.evidence()
        if not self._evidence.active:
            raise ResultsError(
                f"INVALID: {self.spec.environment} was not active: {self._evidence.why_not}",
                where=f"side {self.spec.label}",
                next_step="nothing was kept: without evidence for the layer there is no result",
            )

    def take(self, workload: str) -> None:
        """Load another operation into the same worker and warm it up."""
        setup = dataclasses.replace(self.spec.setup, workload=workload)
        self.spec = dataclasses.replace(self.spec, setup=setup)
        self._session.prepare(setup)
        self.pilot = self._piloted()

    def single_pilot(self) -> Pilot:
        """Warm up with single requests, for the server's bound."""
        return self._session.pilot(1)

    def run_slot(self, slot: Slot, seed: int) -> FloatArray:
        """Run one half of a pair."""
        if self.load_for is not None:
            observation = self._session.apply(self.load_for(seed))
            if self._scenario == "offline":
                columns = observation.columns
                span_ns = float(columns["end_ns"].max() - columns["start_ns"].min())
                return np.array([span_ns / columns["samples"].sum()])  # ns per sample: the inverse of throughput
            return latencies_ns(self._scenario, observation.columns).astype(np.float64)
        runs = slot.dropped + slot.runs
        return self._session.slot(self._batch, runs, seed * runs, slot.dropped).durations_ns.astype(np.float64)

    def restart(self) -> None:
        """Replace the worker: the placement of a process in memory and on cores varies between starts."""
        if self._session.usable:
            self.prove()
        self.end()
        self._session = self._started()
        self._piloted()

    def end(self) -> None:
        """Stop the worker."""
        self._session.end()

    def _piloted(self) -> Pilot:
        # A model's caches and clocks need a second to settle; an operation of microseconds needs a tenth of that.
        pilot = self._session.pilot(self._batch, MICRO_PILOT_S if is_micro(self.spec.setup.workload) else PILOT_S)
        observed = self._session.pilot_observation
        assert observed is not None
        busy = (each.value for each in observed.notices if each.code == BUSY_NEIGHBOURS)
        self._others_percent.append(next(busy, None) or 0.0)
        expected = (BUSY_NEIGHBOURS,) if self._behind_proxy else ()
        self._beyond.append(beyond(observed.telemetry, PAIR_LIMITS, expected))
        return pilot

    def _started(self) -> WorkerSession:
        return WorkerSession(self._environment, self.spec.setup, SilentView(), self._stall_timeout_s)
