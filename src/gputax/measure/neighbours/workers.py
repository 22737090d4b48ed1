"""The two workers of a neighbour experiment: the victim, which is measured, and its neighbour, which only disturbs."""

from __future__ import annotations

from gputax.environments.connection import WorkerConnection
from gputax.environments.evidence import Proven
from gputax.errors import GputaxError, PreflightError, WorkerError
from gputax.measure.session import PREPARE_STALL_S, STALL_FLOOR_S, WorkerSession
from gputax.measure.view import SilentView
from gputax.plan.load import Load
from gputax.plan.neighbours import aggressor_setup, family_of
from gputax.sharing.place import Tenant
from gputax.worker.protocol import decode_array

ANSWER_S = 60.0
# Two clocks of one kernel differ by the time between two questions; of two kernels by whatever they were up.
CLOCKS_APART_NS = 5_000_000_000


class AggressorWorker:
    """A neighbour of one kind in its own worker: idle until it is given a load."""

    def __init__(self, tenant: Tenant, kind: str, device: str, crash_after_ms: int = 0) -> None:
        self.connection = WorkerConnection(tenant.environment)
        try:
            self.described = self.connection.describe()
            affinity = self.described.affinity or (0,)
            # Not the threads of a polite tenant: all that it may use, which is what others have to fear.
            threads = len(affinity) if family_of(device) == "cpu" else 1
            setup = aggressor_setup(kind, tenant.setup, device, threads, crash_after_ms)
            self.facts = self.connection.call("prepare", setup=setup.to_dict(), stall_timeout_s=PREPARE_STALL_S)
        except BaseException:
            self.connection.end()
            raise

    def work(self, start_at_ns: int, seconds: float) -> tuple[int, int]:
        """Work from then on for so long; returns when its first round began and its last one ended."""
        load = Load("saturate", min_duration_s=seconds, start_at_ns=start_at_ns)
        answer = self.connection.call("measure", load=load.to_dict(), stall_timeout_s=seconds + ANSWER_S)
        try:
            columns = {name: decode_array(answer["columns"][name]) for name in ("start_ns", "end_ns")}
        except (KeyError, TypeError) as error:
            raise WorkerError(f"the neighbour's answer lacks something: {error!r}", where="measure") from error
        return int(columns["start_ns"][0]), int(columns["end_ns"][-1])

    def end(self) -> None:
        """End it now."""
        self.connection.end()


def victim_session(tenant: Tenant) -> WorkerSession:
    """Start the tenant that is measured; it is started many times, so it says nothing of each."""
    return WorkerSession(tenant.environment, tenant.setup, SilentView())


def proven(connection: WorkerConnection, device: str) -> Proven:
    """Return a tenant's evidence after the load and its worker's description, with what it tells of its driver."""
    return connection.proven(uses_driver=family_of(device) == "driver", stall_timeout_s=STALL_FLOOR_S)


def common_now_ns(one: WorkerConnection, other: WorkerConnection) -> int:
    """Return the time of the clock that both workers have; two clocks cannot start anything together."""
    first, second = (
        int(each.call("describe", about="clock", stall_timeout_s=ANSWER_S)["monotonic_ns"]) for each in (one, other)
    )
    if abs(second - first) > CLOCKS_APART_NS:
        raise PreflightError(
            "victim and neighbour have different clocks: they are not on one machine",
            next_step="tenants of one device run under one kernel; look at the node and the RuntimeClass",
        )
    return max(first, second)


def how_it_ended(error: GputaxError) -> str:
    """Return how a worker that was meant to crash ended, in its place's words."""
    return error.what.removeprefix("the worker ").removesuffix(" before it answered").removesuffix(" (out of memory?)")
