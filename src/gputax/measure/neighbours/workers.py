"""The two workers of a neighbour experiment: the victim, which is measured, and its neighbour, which may crash."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from gputax.environments.connection import WorkerConnection
from gputax.environments.environment import Proven
from gputax.errors import CellError, GputaxError, PreflightError, WorkerError
from gputax.measure.session import PREPARE_STALL_S, STALL_FLOOR_S, WorkerSession
from gputax.measure.view import SilentView
from gputax.plan.cells import Load
from gputax.plan.techniques import aggressor_setup, family_of
from gputax.sharing.place import Tenant
from gputax.worker.protocol import decode_array

ANSWER_S = 60.0
# Two readings of one kernel's clock differ by the time between them; those of two kernels by their uptimes.
CLOCKS_APART_NS = 5_000_000_000


class AggressorWorker:
    """A neighbour of one kind in its own worker: idle until it gets a load."""

    def __init__(self, tenant: Tenant, kind: str, device: str, crash_after_ms: int = 0) -> None:
        self.connection = WorkerConnection(tenant.environment)
        try:
            self.described = self.connection.describe()
            affinity = self.described.affinity or (0,)
            # Not the usual number of threads but all it may use: the worst case for the others.
            threads = len(affinity) if family_of(device) == "cpu" else 1
            setup = aggressor_setup(kind, tenant.setup, device, threads, crash_after_ms)
            self.facts = self.connection.call("prepare", setup=setup.to_dict(), stall_timeout_s=PREPARE_STALL_S)
        except BaseException:
            self.connection.end()
            raise

    def work(self, start_at_ns: int, seconds: float) -> tuple[int, int]:
        """Work from the start time for this long; returns the start of its first round and the end of its last."""
        load = Load("saturate", min_duration_s=seconds, start_at_ns=start_at_ns)
        answer = self.connection.call("measure", load=load.to_dict(), stall_timeout_s=seconds + ANSWER_S)
        try:
            columns = {name: decode_array(answer["columns"][name]) for name in ("start_ns", "end_ns")}
        except (KeyError, TypeError) as error:
            raise WorkerError(f"malformed reply from the neighbour: {error!r}", where="measure") from error
        return int(columns["start_ns"][0]), int(columns["end_ns"][-1])

    def end(self) -> None:
        """Stop it now."""
        self.connection.end()


def victim_session(tenant: Tenant) -> WorkerSession:
    """Start the tenant that is measured; it is started many times, so starts are not shown."""
    return WorkerSession(tenant.environment, tenant.setup, SilentView())


def proven(connection: WorkerConnection, device: str) -> Proven:
    """Return a tenant's evidence after the load and its worker's description, including its driver."""
    return connection.proven(uses_driver=family_of(device) == "driver", stall_timeout_s=STALL_FLOOR_S)


def common_now_ns(one: WorkerConnection, other: WorkerConnection) -> int:
    """Return the time of the clock that both workers have; with two clocks they cannot start together."""
    first, second = (
        int(each.call("describe", about="clock", stall_timeout_s=ANSWER_S)["monotonic_ns"]) for each in (one, other)
    )
    if abs(second - first) > CLOCKS_APART_NS:
        raise PreflightError(
            "victim and neighbour have different clocks: they are not on one machine",
            next_step="tenants of one device must run under one kernel; check the node and the RuntimeClass",
        )
    return max(first, second)


def how_it_ended(error: GputaxError) -> str:
    """Return how a worker that was meant to crash ended, as its place reports it."""
    return error.what.removeprefix("the worker ").removesuffix(" before it answered").removesuffix(" (out of memory?)")


LEAST_LIFE_MS, MOST_LIFE_MS = 50, 1000
LIVES_PER_SLOT = 3
# A neighbour still alive this long after its time is not going to crash.
OVERDUE_S = 10.0


def life_ms(window_s: float) -> int:
    """Return how long the neighbour works before it crashes, so that a slot contains at least one complete crash."""
    return int(min(max(window_s * 1000 / LIVES_PER_SLOT, LEAST_LIFE_MS), MOST_LIFE_MS))


@dataclass(frozen=True)
class CrashOutcome:
    """The effect of one cell's crashes on the other tenants."""

    ends: tuple[str, ...]
    """How the neighbour ended, one entry per crash."""
    victim_error: str = ""
    """Why the victim did not continue; empty if it did."""
    new_tenant_error: str = ""
    """Why no new tenant could start after a crash; empty if one always could."""
    longest_alone_ms: float = 0.0
    longest_beside_ms: float = 0.0
    runs_beside: int = 0

    @property
    def contained(self) -> bool:
        """Whether the crashes stayed with their tenant."""
        return bool(self.ends) and not self.victim_error and not self.new_tenant_error


class CrashLoop:
    """Crashes and restarts a neighbour for the duration of the victim's slot."""

    def __init__(self, tenant: Tenant, device: str, window_s: float) -> None:
        self._tenant, self._device = tenant, device
        self.life_ms = life_ms(window_s)
        self.ends: list[str] = []
        self.new_tenant_error = ""
        self._abandoned = threading.Event()
        self.worker = self._started()

    def crash_until(self, start_at_ns: int, stop: threading.Event) -> None:
        """Crash at least once, start again after each crash, and leave a living neighbour behind."""
        while not self._abandoned.is_set():
            self.ends.append(self._one_life(start_at_ns))
            try:
                self.worker = self._started()
            except GputaxError as error:
                self.new_tenant_error = error.what
                return
            if stop.is_set():
                return
            start_at_ns = 0  # a restarted neighbour starts at once

    def end(self) -> None:
        """Stop the neighbour, and one that may be starting."""
        self._abandoned.set()
        self.worker.end()

    def _one_life(self, start_at_ns: int) -> str:
        try:
            self.worker.work(start_at_ns, self.life_ms / 1e3 + OVERDUE_S)
        except GputaxError as error:
            if not self.worker.connection.ended:
                raise  # it refused the load and is alive: not a crash
            return how_it_ended(error)
        raise CellError("the neighbour should have crashed during its work and did not", where="aggressor crash")

    def _started(self) -> AggressorWorker:
        worker = AggressorWorker(self._tenant, "crash", self._device, self.life_ms)
        if self._abandoned.is_set():
            worker.end()
        return worker


def together(outcomes: Sequence[CrashOutcome]) -> CrashOutcome:
    """Return the outcomes of all restarts as one; only the first error is reported."""
    return CrashOutcome(
        ends=tuple(end for each in outcomes for end in each.ends),
        victim_error=next((each.victim_error for each in outcomes if each.victim_error), ""),
        new_tenant_error=next((each.new_tenant_error for each in outcomes if each.new_tenant_error), ""),
        longest_alone_ms=max((each.longest_alone_ms for each in outcomes), default=0.0),
        longest_beside_ms=max((each.longest_beside_ms for each in outcomes), default=0.0),
        runs_beside=sum(each.runs_beside for each in outcomes),
    )
