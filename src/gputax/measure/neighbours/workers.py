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
