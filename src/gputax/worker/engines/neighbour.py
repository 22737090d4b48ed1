"""The engine `neighbour`: a tenant that uses one kind of resource as much as it can, to measure its effect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gputax.errors import UsageError
from gputax.plan.neighbours import AGGRESSORS, ENGINE, family_of
from gputax.worker.engines.engine import EngineRequest, NoResponse, Samples


@dataclass(frozen=True)
class Work:
    """The work of one kind of neighbour: once per run, and at the end."""

    run: Callable[[], None]
    close: Callable[[], None]
    device: str
    facts: dict[str, Any]
    """At least `provider` and `threads`; for the CPU the worker's own description names the device."""


class NeighbourEngine:
    """Runs one kind of neighbour; one sample is one round of its work."""

    def __init__(self, request: EngineRequest) -> None:
        kind = str(request.options["kind"])
        if request.workload != f"{ENGINE}:{kind}":
            raise UsageError(
                f"the engine neighbour only disturbs others and cannot run {request.workload}",
                next_step=f"run gputax share --victim single-stream --aggressor {kind}",
            )
        crash_after_ms = int(request.options["crash_after_ms"])
        wanted = "cpu" if request.device == "auto" else request.device
        self._about = AGGRESSORS[kind, family_of(wanted)].about
        self._request = request
        self._work = _work(kind, wanted, request, crash_after_ms)
        self._run = self._work.run
        if kind != "crash":
            self._run()  # the first round touches its memory for the first time and takes up to 25 times as long
        self.device = self._work.device
        self._response = NoResponse(request.max_batch)
        self.response_address = self._response.address
        self.response_bytes = self._response.bytes_per_sample

    def facts(self) -> dict[str, Any]:
        """Return what the neighbour does, so that its numbers cannot pass for a workload's."""
        return {
            "engine": "neighbour",
            "about": self._about,
            "options": dict(self._request.options),
            "precision": "none",
            **self._work.facts,
        }

    def adapt_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return them unchanged."""
        return inputs

    def load_samples(self, samples: Samples) -> None:
        """Need none."""

    def run(self, first: int, count: int) -> None:
        """Do `count` rounds; each returns when its work is done."""
        for _ in range(count):
            self._run()

    def close(self) -> None:
        """Release threads, pipes and memory."""
        self._work.close()


def _work(kind: str, device: str, request: EngineRequest, crash_after_ms: int) -> Work:
    if family_of(device) == "cpu":
        from gputax.worker.engines.neighbour_cpu import cpu_work

        return cpu_work(kind, request.threads, request.seed, crash_after_ms)
    from gputax.worker.engines.neighbour_driver import driver_work

    return driver_work(kind, device, request.seed, crash_after_ms)
