"""N workers as one: started together, released together, asked together, ended together."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from gputax.environments.environment import Described, Environment, Evidence, Proven, WorkerProcess
from gputax.errors import CellError, PreflightError
from gputax.measure.session import FIRST_RUN_STALL_S, Observation, WorkerSession, in_parallel
from gputax.measure.view import RunView, SilentView
from gputax.plan.cells import Load
from gputax.plan.driver import driver_choice
from gputax.sharing.place import Tenant

T = TypeVar("T")
Progress = Callable[[int, int], None]
"""(number of the tenant from 0, samples done so far)."""
# Delay from the clock query to the start: every worker must have read its load and opened its telemetry.
RELEASE_S, RELEASE_PER_TENANT_S = 0.3, 0.05
CLOCK_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Released:
    """The result of one load from all tenants, on one clock."""

    release_ns: int
    observations: tuple[Observation, ...]
    unix_ns: int = 0
    """Offset from a tenant's time to Unix time, accurate to a few milliseconds."""


@dataclass(frozen=True)
class Proof:
    """The tenants' reports after a load: evidence of their environments, and their descriptions."""

    evidences: tuple[Evidence, ...]
    described: tuple[Described, ...]


class TenantGroup:
    """The workers of one cell. `close` stops them gracefully, `end` at once; both may be called from another thread."""

    def __init__(self, tenants: Sequence[Tenant], view: RunView, stall_timeout_s: float = 0.0) -> None:
        self.tenants = tuple(tenants)
        self._view = view
        self._stall_timeout_s = stall_timeout_s
        self._lock = threading.Lock()
        self._processes: list[WorkerProcess] = []
        self._ended = False
        self._views = [_TenantView(view if number == 0 else None) for number in range(len(tenants))]
        self._made: list[WorkerSession] = []
        """Sessions as they become ready: a ready one must also be stopped when another fails."""
        try:
            self.sessions = self._all(self._session)
            self._refuse_different_clocks()
        except BaseException:
            self.end()
            raise

    def release(self, load: Load, progress: Progress | None = None, in_flight: Sequence[int] = ()) -> Released:
        """Apply the load to all tenants; none begins before a common time, which is set here.

        `in_flight` gives each tenant a number of runs in flight of its own.
        """
        wait_ns = int(1e9 * (RELEASE_S + RELEASE_PER_TENANT_S * len(self.sessions)))
        now_ns = self._clock(self.sessions[0])[0]
        unix_ns = time.time_ns() - now_ns
        release_ns = now_ns + wait_ns
        agreed = dataclasses.replace(load, start_at_ns=release_ns)
        for number, view in enumerate(self._views):
            view.on_progress = None if progress is None else partial(progress, number)

        def apply(number: int) -> Observation:
            own = dataclasses.replace(agreed, in_flight=in_flight[number]) if in_flight else agreed
            return self.sessions[number].apply(own, self._stall_timeout_s or FIRST_RUN_STALL_S)

        return Released(release_ns, tuple(self._all(apply)), unix_ns)

    def proof(self) -> Proof:
        """Collect reports from every worker and its environment after the load."""

        def ask(number: int) -> Proven:
            session = self.sessions[number]
            uses_driver = driver_choice(session.setup).needed
            return session.connection.proven(uses_driver=uses_driver, stall_timeout_s=CLOCK_TIMEOUT_S)

        answers = self._all(ask)
        return Proof(tuple(each.evidence for each in answers), tuple(each.described for each in answers))

    def close(self) -> None:
        """Stop all workers gracefully."""
        try:
            self._all(lambda number: self.sessions[number].close())
        finally:
            self.end()

    def end(self) -> None:
        """Stop all workers now; may be called twice."""
        self._abandon()
        for session in self._made:
            session.end()

    def _all(self, task: Callable[[int], T]) -> list[T]:
        def named(number: int) -> T:
            try:
                return task(number)
            except CellError as error:
                who = f"tenant {number + 1} of {len(self.tenants)}"
                error.where = f"{who}, {error.where}" if error.where else who
                raise

        return in_parallel([partial(named, number) for number in range(len(self.tenants))], self._abandon)

    def _abandon(self) -> None:
        with self._lock:
            self._ended = True
            processes = list(self._processes)
        for process in processes:
            process.kill()

    def _session(self, number: int) -> WorkerSession:
        tenant = self.tenants[number]
        watched = _Watched(tenant.environment, self._add)
        session = WorkerSession(watched, tenant.setup, self._views[number], self._stall_timeout_s)
        self._made.append(session)
        return session

    def _add(self, process: WorkerProcess) -> None:
        with self._lock:
            self._processes.append(process)
            late = self._ended
        if late:
            process.kill()

    def _clock(self, session: WorkerSession) -> tuple[int, int, int]:
        """Return the worker's time and the bounds of its offset from ours."""
        before_ns = time.perf_counter_ns()
        worker_ns = int(
            session.connection.call("describe", about="clock", stall_timeout_s=CLOCK_TIMEOUT_S)["monotonic_ns"]
        )
        return worker_ns, worker_ns - time.perf_counter_ns(), worker_ns - before_ns

    def _refuse_different_clocks(self) -> None:
        boots = {each.described.host.get("boot_id") for each in self.sessions}
        bounds = [self._clock(session)[1:] for session in self.sessions]
        hosts = {str(each.described.hostname) for each in self.sessions}
        if len(boots - {None}) > 1 or max(low for low, _ in bounds) > min(high for _, high in bounds):
            raise PreflightError(
                "the tenants have different clocks: they are on different machines or in separate virtual machines",
                where=", ".join(sorted(hosts)),
                next_step="tenants of one device must run under one kernel; check the node and the RuntimeClass",
            )


class _TenantView(SilentView):
    """Forwards one tenant's events; only the first tenant's messages are shown, because the others repeat them."""

    def __init__(self, view: RunView | None) -> None:
        self._view = view
        self.on_progress: Callable[[int], None] | None = None

    def phase(self, text: str) -> None:
        """Forward the first tenant's messages."""
        if self._view is not None:
            self._view.phase(text)

    def progress(self, done: int, total: int) -> None:
        """Forward the number of samples done."""
        if self.on_progress is not None:
            self.on_progress(done)


class _Watched:
    """An environment that reports each process at its start, so that one still preparing can be stopped."""

    def __init__(self, environment: Environment, started: Callable[[WorkerProcess], None]) -> None:
        self.name = environment.name
        self._environment, self._started = environment, started

    def start(self) -> WorkerProcess:
        process = self._environment.start()
        self._started(process)
        return process

    def evidence(self, described: Described) -> Evidence:
        return self._environment.evidence(described)
