"""The real sides of a duet: a worker in an environment, asked for closed-loop slots or short LoadGen runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gputax.environments import environment_named
from gputax.measure.duet import Slot
from gputax.measure.sizing import Pilot
from gputax.measure.summary import latencies_ns
from gputax.measure.view import SilentView
from gputax.measure.worker_session import WorkerSession
from gputax.plan.cells import Setup
from gputax.plan.load import Load

CLOSED_LOOPS = ("single-stream", "multi-stream", "saturate")
FloatArray = npt.NDArray[np.float64]
# For LoadGen slots: the load of one slot, by its seed.
LoadForSeed = Callable[[int], Load]


@dataclass(frozen=True)
class SideSpec:
    """What one side of the duet is."""

    label: str
    environment: str
    setup: Setup


class WorkerSide:
    """One environment with a warm worker."""

    def __init__(self, spec: SideSpec, scenario: str, batch: int, stall_timeout_s: float = 0.0) -> None:
        self.spec = spec
        self._scenario = scenario
        self._batch = batch
        self._stall_timeout_s = stall_timeout_s
        self._environment = environment_named(spec.environment)
        self.load_for: LoadForSeed | None = None
        self._session = self._started()
        self.pilot = self._session.pilot(batch)

    @property
    def facts(self) -> dict[str, Any]:
        """What the worker really loaded."""
        return self._session.facts

    @property
    def described(self) -> dict[str, Any]:
        """What the worker told of its place."""
        return self._session.described

    def evidence(self) -> dict[str, Any]:
        """What proves that the environment was active."""
        return self._environment.evidence(self._session.described)

    def single_pilot(self) -> Pilot:
        """Warm single requests, for the server's bound."""
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
        durations = self._session.slot(self._batch, slot.dropped + slot.runs, seed * (slot.dropped + slot.runs))
        return durations[slot.dropped :].astype(np.float64)

    def restart(self) -> None:
        """Replace the worker: where a process lands in memory and on the cores is a variation of its own."""
        self.end()
        self._session = self._started()
        self._session.pilot(self._batch)

    def end(self) -> None:
        """End the worker."""
        self._session.end()

    def _started(self) -> WorkerSession:
        return WorkerSession(self._environment, self.spec.setup, SilentView(), self._stall_timeout_s)
