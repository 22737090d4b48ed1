"""The request of a duet."""

from __future__ import annotations

from dataclasses import dataclass

from gputax.measure.duet.sides import SideSpec
from gputax.plan.budgets import Budget
from gputax.plan.notices import Notice

# Seconds of one LoadGen slot: its 31 ms of fixed cost are then 2 %.
LOADGEN_SLOT_S = 1.5


@dataclass(frozen=True)
class DuetRequest:
    """What the user asked for."""

    a: SideSpec
    b: SideSpec
    scenario: str
    batch: int
    budgets: dict[str, Budget]
    width_percent: float | None
    """Stop at this half-width of the intervals that decide; None: stop when the verdict is clear."""
    max_time_s: float
    control: bool = True
    seed: int = 7
    stall_timeout_s: float = 0.0
    command: str = ""
    injected: bool = False
    """The engines differ on purpose (`--engine-b`): that difference is what is tested."""
    named: frozenset[str] = frozenset()
    """The metrics named by a budget; they must be judged."""
    workloads: tuple[str, ...] = ()
    """Several operations of `micro`, which share the time; the sides are set up for the first."""
    notices: tuple[Notice, ...] = ()
    """What is wrong with the request itself, such as a budget for a layer that neither side has."""
    accept_disturbed: bool = False
    """Verdicts stand although the machine was disturbed; the label stays."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The workloads to measure, in order."""
        return self.workloads or (self.a.setup.workload,)
