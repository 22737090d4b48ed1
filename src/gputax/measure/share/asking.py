"""Tenants that ask for shares: who they are in each situation, and how much memory each can allocate."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gputax.environments.connection import WorkerConnection
from gputax.errors import UsageError
from gputax.measure.session import in_parallel
from gputax.plan.shares import AskingPlan
from gputax.plan.techniques import TECHNIQUES, ShareCell, SharePlan
from gputax.sharing.place import AsksForShares, SharedPlace, Tenant

PROBE_S = 300.0
RESOLUTION_BYTES = 1 << 20
"""The smallest block that the probe tries (`worker/isolation.py`)."""


def asking_tenants(place: SharedPlace, plan: SharePlan, cell: ShareCell) -> list[Tenant]:
    """Return the cell's tenants, not yet started."""
    technique = TECHNIQUES[cell.technique]
    if not isinstance(plan, AskingPlan):
        return place.tenants(technique, cell.tenants, plan.parts, plan.setup)
    return asks(place).asking(technique, cell.shares, plan.setup)


def refuse_shares(place: SharedPlace, plan: AskingPlan, techniques: Sequence[str]) -> None:
    """Raise UsageError before anything is measured if a technique cannot be asked for these shares."""
    for name in techniques:
        asks(place).refuse_shares(TECHNIQUES[name], plan.shares, plan.setup)


def asks(place: SharedPlace) -> AsksForShares:
    """Return the place as one that can be asked."""
    if not isinstance(place, AsksForShares):
        raise UsageError(f"tenants of the environment {place.name} cannot ask for shares", next_step="drop --shares")
    return place


def obtained_memory(tenants: Sequence[Tenant], situation: str) -> tuple[int, ...]:
    """Return what each tenant can allocate in a fresh process: at the same time, or after the greedy ones took theirs.

    A fresh process, because an engine holds memory that cannot be told from what others hold.
    """
    started: list[WorkerConnection] = []

    def fill(number: int) -> int:
        ask = partial(started[number].call, "describe", about="isolation", stall_timeout_s=PROBE_S)
        answer = ask(family="driver", probe="fill")
        return int(answer["isolation"]["taken_bytes"])

    def abandon() -> None:
        for each in started:
            each.end()

    try:
        for tenant in tenants:
            started.append(WorkerConnection(tenant.environment))
            started[-1].describe()
        if situation != "greedy":
            return tuple(in_parallel([partial(fill, number) for number in range(len(tenants))], abandon))
        neighbours = [fill(number) for number in range(1, len(tenants))]
        return (fill(0), *neighbours)
    finally:
        abandon()
