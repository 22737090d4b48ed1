"""One victim beside one kind of neighbour under one technique: restarts of both, slots alone and together, evidence."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gputax.environments.environment import Described, Evidence
from gputax.errors import CellError
from gputax.measure.neighbours.slots import VictimSlot, counted_slot, no_run_counts, slot_order
from gputax.measure.neighbours.workers import (
    ANSWER_S,
    AggressorWorker,
    CrashLoop,
    CrashOutcome,
    common_now_ns,
    proven,
    together,
    victim_session,
)
from gputax.measure.session import Observation, WorkerSession, in_parallel
from gputax.measure.sizing import Pilot
from gputax.measure.view import RunView
from gputax.plan.cells import Load
from gputax.plan.notices import Notice
from gputax.plan.techniques import AggressorKind, SharePlan, Technique
from gputax.sharing.place import SharedPlace, Tenant
from gputax.text import digits
from gputax.worker.probes.disturbance import PAIR_LIMITS, beyond, in_most, reasons

# Delay from the clock query to the start: both workers must have read their loads and opened their telemetry.
RELEASE_S = 0.3
# The neighbour's head start: its first rounds warm caches and clocks.
SETTLE_S = 0.1
LEAST_TAIL_S, TAIL_CALLS = 0.1, 3
# A slot has this many runs of the victim alone; if no run next to a neighbour counts, it is doubled.
LEAST_CALLS, MOST_DOUBLINGS = 6, 3
LATEST_NS = 1 << 62


@dataclass
class CellResult:
    """All results of one victim with one kind of neighbour, restart by restart."""

    slots: list[VictimSlot] = field(default_factory=list)
    evidences: list[Evidence] = field(default_factory=list)
    """Evidence of the technique over both tenants, after each restart."""
    notices: list[Notice] = field(default_factory=list)
    beyond: list[list[Notice]] = field(default_factory=list)
    """What disturbed each slot alone beyond the limits of pairs."""
    crash: CrashOutcome | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    described: Described = field(default_factory=Described)
    aggressor_facts: dict[str, Any] = field(default_factory=dict)

    @property
    def disturbed(self) -> tuple[str, ...]:
        """Why the machine was not quiet enough even for pairs: beyond the limits in more than half of the slots."""
        return reasons(in_most(self.beyond))

    def reasons(self) -> list[str]:
        """Return why the technique is not proven; the cell is then invalid."""
        return list(
            dict.fromkeys(
                str(reason)
                for evidence in self.evidences
                if not evidence.active
                for reason in evidence.reasons or ("the technique was not proven active",)
            )
        )


def parts_of(plan: SharePlan) -> int:
    """Return the number of parts of the device: as requested, at least one for each of the two tenants."""
    return max(2, plan.slices)


def measure_beside(
    place: SharedPlace, technique: Technique, plan: SharePlan, kind: AggressorKind, view: RunView
) -> CellResult:
    """Measure every restart; it ends early if a crash also ends the victim."""
    result = CellResult()
    crashes: list[CrashOutcome] = []
    started_s = time.monotonic()
    for restart in range(1, plan.repeats + 1):
        left_s = (time.monotonic() - started_s) / max(1, restart - 1) * (plan.repeats - restart + 1)
        left = f", about {left_s:.0f} s more" if restart > 1 else ""
        view.phase(f"{kind}: {restart} of {plan.repeats}{left}")
        victim, aggressor = place.tenants(technique, 2, parts_of(plan), plan.setup)
        with _Restart(restart, victim, aggressor, kind, plan, technique) as both:
            for number, beside in enumerate(slot_order(restart)):
                if not both.run_slot(number, beside=beside):
                    break
            else:
                both.prove(place, technique, result)
            result.slots += both.slots
            result.notices += both.notices
            result.beyond += both.beyond
            result.facts, result.described = both.victim.facts, both.victim.described
            if both.loop is not None:
                crashes.append(both.outcome())
                result.crash = together(crashes)
                if not result.crash.contained:
                    return result
    return result


class _Restart:
    """Both workers, from start to stop."""

    def __init__(
        self,
        restart: int,
        victim: Tenant,
        aggressor: Tenant,
        kind: AggressorKind,
        plan: SharePlan,
        technique: Technique,
    ) -> None:
        self._restart, self._plan, self._technique = restart, plan, technique
        self._aggressor_tenant, self._kind = aggressor, kind
        self.slots: list[VictimSlot] = []
        self.notices: list[Notice] = []
        self.beyond: list[list[Notice]] = []
        self.victim_error = ""
        self.loop: CrashLoop | None = None
        self._worker: AggressorWorker | None = None
        self.victim: WorkerSession = victim_session(victim)

    def __enter__(self) -> _Restart:
        try:
            self._device = str(self.victim.facts["device"])
            if self._kind == "crash":
                self.loop = CrashLoop(self._aggressor_tenant, self._device, self._plan.window_s)
            else:
                self._worker = AggressorWorker(self._aggressor_tenant, self._kind, self._device)
            self.pilot: Pilot = self.victim.pilot(1, self._plan.warmup_s)
            self._slot_s = max(self._plan.window_s, LEAST_CALLS * self.pilot.call_ns / 1e9)
            if self._slot_s > self._plan.window_s:
                self.notices.append(_stretched(self._plan.window_s, self._slot_s))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self.victim, self.loop, self._worker):
            if each is not None:
                each.end()

    @property
    def neighbour(self) -> AggressorWorker:
        """The current neighbour."""
        worker = self.loop.worker if self.loop is not None else self._worker
        assert worker is not None
        return worker

    def run_slot(self, number: int, *, beside: bool) -> bool:
        """Run one slot; False if a crash also ended the victim, or no new tenant can start."""
        for attempt in range(MOST_DOUBLINGS + 1):
            try:
                observation, span_ns = self._observed(beside=beside)
            except CellError as error:
                if self.loop is None or not self.loop.ends or _answers(self.victim):
                    raise
                self.victim_error = error.what
                return False
            slot = counted_slot(self._restart, number, observation.columns, self.pilot.call_ns, span_ns)
            if slot.counted.any():
                break
            if attempt == MOST_DOUBLINGS:
                raise no_run_counts(slot, self._slot_s)
            self._slot_s *= 2
        self.slots.append(slot)
        if not beside:  # with a neighbour, the notice about other processes would be about the neighbour itself
            self.notices += observation.notices
            self.beyond.append(beyond(observation.telemetry, PAIR_LIMITS, self._technique.expected_notices))
        return self.loop is None or not self.loop.new_tenant_error

    def _observed(self, *, beside: bool) -> tuple[Observation, tuple[int, int] | None]:
        at_ns = common_now_ns(self.victim.connection, self.neighbour.connection) + int(RELEASE_S * 1e9)
        if not beside:
            return self.victim.apply(self._load(at_ns)), None
        return self._beside(at_ns) if self.loop is None else self._beside_crashes(self.loop, at_ns)

    def _beside(self, at_ns: int) -> tuple[Observation, tuple[int, int]]:
        seconds = SETTLE_S + self._slot_s + max(LEAST_TAIL_S, TAIL_CALLS * self.pilot.call_ns / 1e9)
        tasks: list[Callable[[], Any]] = [
            lambda: self.victim.apply(self._load(at_ns + int(SETTLE_S * 1e9))),
            lambda: self.neighbour.work(at_ns, seconds),
        ]
        observation, span_ns = in_parallel(tasks, self.__exit__)
        return observation, span_ns

    def _beside_crashes(self, loop: CrashLoop, at_ns: int) -> tuple[Observation, tuple[int, int]]:
        over = threading.Event()

        def measured() -> Observation | CellError:
            try:
                return self.victim.apply(self._load(at_ns))
            except CellError as error:
                return error  # wait for the crash: it may have ended the victim
            finally:
                over.set()

        tasks: list[Callable[[], Any]] = [measured, lambda: loop.crash_until(at_ns, over)]
        observation, _ = in_parallel(tasks, self.__exit__)
        if isinstance(observation, CellError):
            raise observation
        if int(observation.columns["end_ns"][-1]) < at_ns + loop.life_ms * 1_000_000:
            raise CellError("the victim's slot ended before the neighbour crashed", where=f"restart {self._restart}")
        return observation, (at_ns, LATEST_NS)

    def _load(self, start_at_ns: int) -> Load:
        hint = int(self.pilot.call_ns)
        return Load("saturate", min_duration_s=self._slot_s, start_at_ns=start_at_ns, expected_latency_ns=hint)

    def prove(self, place: SharedPlace, technique: Technique, result: CellResult) -> None:
        """Collect the evidence of both tenants after their last slot."""
        proofs = [proven(each, self._device) for each in (self.victim.connection, self.neighbour.connection)]
        evidences, described = [each.evidence for each in proofs], [each.described for each in proofs]
        result.evidences.append(place.evidence(technique, evidences, described))
        result.aggressor_facts = self.neighbour.facts

    def outcome(self) -> CrashOutcome:
        """Return the outcome of the crashes in this restart."""
        assert self.loop is not None
        longest = {
            beside: max((slot.latency_ns.max() / 1e6 for slot in self.slots if slot.beside is beside), default=0.0)
            for beside in (False, True)
        }
        return CrashOutcome(
            ends=tuple(self.loop.ends),
            victim_error=self.victim_error,
            new_tenant_error=self.loop.new_tenant_error,
            longest_alone_ms=float(longest[False]),
            longest_beside_ms=float(longest[True]),
            runs_beside=sum(len(slot.start_ns) for slot in self.slots if slot.beside),
        )


def _stretched(asked_s: float, given_s: float) -> Notice:
    text = f"slots of {asked_s:g} s are too short for this victim: using {digits(given_s, 3)} s"
    return Notice("slot-stretched", text, given_s)


def _answers(session: WorkerSession) -> bool:
    """Whether a worker still answers; one whose load failed reports that and then exits."""
    try:
        session.connection.call("describe", about="clock", stall_timeout_s=ANSWER_S)
    except CellError:
        return False
    return True
