"""The neighbour that crashes: it dies in the middle of its work and is started again, as an orchestrator would do."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from gputax.errors import CellError, GputaxError
from gputax.measure.neighbours.workers import AggressorWorker, how_it_ended
from gputax.sharing.place import Tenant

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
