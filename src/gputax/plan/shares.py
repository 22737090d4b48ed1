"""Shares that tenants ask for: how they are written, what each promises, and the cells that show what was obtained."""

from __future__ import annotations

import dataclasses
import random
import re
from dataclasses import dataclass
from typing import Literal

from gputax.errors import UsageError
from gputax.plan.engines import ENGINES, parse_engine
from gputax.plan.environment import K8S, PROXY
from gputax.plan.techniques import ShareCell, SharePlan

Resource = Literal["compute", "memory"]
Situation = Literal["alone", "equals", "greedy"]
SITUATIONS: tuple[Situation, ...] = ("alone", "equals", "greedy")
WHOLE = "whole"
"""The cell that the others are compared with: one tenant that may use the whole device."""
BESIDE: dict[str, str] = {"alone": "nobody", "equals": "equals", "greedy": "greedy ones"}
"""Who runs beside the measured tenant, in a table."""
# Of a launch-and-wait loop a limiter that looks at the device's use sees an idle device: it never acts.
IN_FLIGHT = 4
# The runs in flight of a greedy neighbour, as a multiple.
GREEDY_TIMES = 4
TOLERANCE_PERCENT = 5.0
EXAMPLE = "e.g. --shares 30,70, or --shares 1/3 for three equal ones"
EXCLUSIVE = "exclusive"
# Techniques of a node that give one tenant the whole device if it asks for all of it.
WHOLE_ITSELF = (PROXY, "fraction")
# Shares that differ by less are the same: 1/3 cannot be written exactly.
EQUAL_WITHIN = 1e-9
_EQUAL = re.compile(r"1/(\d+)")


@dataclass(frozen=True)
class Asked:
    """What one tenant asked for, in parts of the whole device."""

    compute: float | None
    """None: no share of compute was asked for."""
    memory: float | None = None
    """None: no share of memory was asked for."""
    exact: bool = True
    """The share is a cap as well; otherwise a tenant may take more while the others leave it."""


def parse_shares(text: str) -> tuple[float, ...]:
    """Return the parts of `30,70` (percent) or `1/N`; together at most the whole device, at least two of them."""
    equal = _EQUAL.fullmatch(text.strip())
    if equal:
        count = int(equal[1])
        shares = (1.0 / count,) * count if count else ()
    else:
        try:
            shares = tuple(float(part) / 100.0 for part in text.split(","))
        except ValueError as error:
            raise UsageError(f"--shares {text!r} is not a list of percentages", next_step=EXAMPLE) from error
    if len(shares) < 2 or not all(0.0 < share < 1.0 for share in shares):
        raise UsageError(f"--shares {text!r}: two or more shares, each above 0 and below 100 %", next_step=EXAMPLE)
    if sum(shares) > 1.0 + 1e-9:
        raise UsageError(f"--shares {text!r} is more than the whole device: {sum(shares):.0%}", next_step=EXAMPLE)
    return shares


@dataclass(frozen=True)
class AskingPlan(SharePlan):
    """An experiment that compares the shares that tenants asked for with those that they obtained."""

    shares: tuple[float, ...] = ()
    tolerance_percent: float = TOLERANCE_PERCENT
    in_flight: int = IN_FLIGHT

    def __post_init__(self) -> None:
        SharePlan.__post_init__(self)
        if self.tenants != (len(self.shares),):
            raise UsageError("--shares gives the number of tenants", next_step="drop --tenants")
        if EXCLUSIVE in self.techniques:
            raise UsageError("exclusive shares nothing: it is what the others are compared with", next_step="drop it")
        if not 0.0 < self.tolerance_percent < 100.0:
            raise UsageError("--tolerance must be above 0 and below 100 %", next_step="e.g. --tolerance 5%")
        name = parse_engine(self.setup.engine).name
        if self.in_flight > 1 and not ENGINES[name].overlaps:
            able = ", ".join(kind.name for kind in ENGINES.values() if kind.overlaps)
            raise UsageError(
                f"the engine {name} cannot keep {self.in_flight} runs in flight, so a limiter might never act",
                next_step=f"use one of the engines {able}; or --in-flight 1",
            )

    def cells(self) -> tuple[ShareCell, ...]:
        """Return all cells: in each repeat and technique the whole device, and every situation, in a random order.

        Tenants that ask for the same share are measured once alone, and once beside greedy ones.
        """
        order = random.Random(self.seed)
        found: list[ShareCell] = []
        for repeat in range(1, self.repeats + 1):
            groups: dict[str, list[ShareCell]] = {}
            for technique in self.techniques:
                whole = ShareCell(self.whole_of(technique), 1, repeat, WHOLE, (1.0,))
                groups.setdefault(whole.technique, [])
                if whole not in groups[whole.technique]:
                    groups[whole.technique].append(whole)
                groups.setdefault(technique, []).extend(self._cells_of(technique, repeat))
            for technique in order.sample(list(groups), len(groups)):
                found += order.sample(groups[technique], len(groups[technique]))
        return tuple(found)

    @property
    def measured(self) -> tuple[int, ...]:
        """The first tenant of each share, from 1."""
        return tuple(number for number, share in enumerate(self.shares, 1) if self.shares.index(share) == number - 1)

    def in_flight_of(self, cell: ShareCell) -> tuple[int, ...]:
        """Return how many runs each tenant of the cell has in flight; the measured one comes first."""
        greedy = GREEDY_TIMES if cell.situation == "greedy" else 1
        return (self.in_flight, *(self.in_flight * greedy for _ in cell.shares[1:]))

    def whole_of(self, technique: str) -> str:
        """Return the technique that gives one tenant the whole device: on a node that is another one."""
        return EXCLUSIVE if self.place == K8S and technique not in WHOLE_ITSELF else technique

    def _cells_of(self, technique: str, repeat: int) -> list[ShareCell]:
        cells = [self._cell(technique, repeat, "equals", 0)]
        for number in self.measured:
            cells += [self._cell(technique, repeat, situation, number) for situation in ("alone", "greedy")]
        return cells

    def _cell(self, technique: str, repeat: int, situation: str, number: int) -> ShareCell:
        if situation == "alone":
            return ShareCell(technique, 1, repeat, situation, (self.shares[number - 1],), number)
        first = max(number, 1)
        rest = tuple(share for other, share in enumerate(self.shares, 1) if other != first)
        shares = (self.shares[first - 1], *rest)
        return ShareCell(technique, len(shares), repeat, situation, shares, number)


def asking(
    plan: SharePlan, shares: tuple[float, ...], tolerance_percent: float | None = None, in_flight: int | None = None
) -> AskingPlan:
    """Return the plan with tenants that ask for these shares."""
    known = {field.name: getattr(plan, field.name) for field in dataclasses.fields(SharePlan)}
    return AskingPlan(
        **known,
        shares=shares,
        tolerance_percent=TOLERANCE_PERCENT if tolerance_percent is None else tolerance_percent,
        in_flight=IN_FLIGHT if in_flight is None else in_flight,
    )
