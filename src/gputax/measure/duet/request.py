"""What a duet is asked to do."""

from __future__ import annotations

from dataclasses import dataclass

from gputax.measure.duet.sides import SideSpec
from gputax.plan.budgets import Budget

# Seconds of one LoadGen slot: 31 ms of fixed cost are then 2 %.
LOADGEN_SLOT_S = 1.5


@dataclass(frozen=True)
class DuetRequest:
    """What the user asked for."""

    a: SideSpec
    b: SideSpec
    scenario: str
    batch: int
    budgets: dict[str, Budget]
    width_percent: float
    max_time_s: float
    control: bool = True
    seed: int = 7
    stall_timeout_s: float = 0.0
    command: str = ""
    injected: bool = False
    """The engines differ on purpose (`--engine-b`): that difference is the thing under test."""
    named: frozenset[str] = frozenset()
    """The metrics that a budget names: they must be judged."""
    workloads: tuple[str, ...] = ()
    """Several operations of `micro`, the first of which the sides are set up for; they share the time."""

    @property
    def parts(self) -> tuple[str, ...]:
        """What is measured, in order."""
        return self.workloads or (self.a.setup.workload,)
