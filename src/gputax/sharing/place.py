"""The protocol of shared places: switch a device to a technique, provide the tenants' environments, and switch back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from gputax.environments.environment import Described, Environment, Evidence
from gputax.errors import PreflightError, UsageError
from gputax.plan.cells import Setup
from gputax.plan.shares import EQUAL_WITHIN, Asked
from gputax.plan.techniques import Entitlement, Technique

Say = Callable[[str], None]


@dataclass(frozen=True)
class Tenant:
    """One of N workers that share the device: its environment, its setup and what it may use."""

    environment: Environment
    setup: Setup
    """The experiment's setup with this tenant's threads and wait policy filled in."""
    entitlement: Entitlement
    metrics_address: str = ""
    """HOST:PORT of this tenant's Prometheus metrics; empty if it serves none."""
    asked: Asked | None = None
    """What it asked for, where that is compared with what it obtains."""


@dataclass(frozen=True)
class Switched:
    """The place reports that the device now offers the technique."""

    seconds: float
    facts: Mapping[str, Any] = field(default_factory=dict)


class SharedPlace(Protocol):
    """Where tenants share a device. `measure` opens one for an experiment and always closes it."""

    name: str
    """`bare` or `k8s`."""

    def switch(self, technique: Technique, parts: int, say: Say) -> Switched:
        """Switch the device to the technique and return when it is offered; raise PreflightError if it never is.

        Does nothing if it is already offered. `parts` is the number of tenants that the device must take.
        """
        ...

    def tenants(self, technique: Technique, count: int, parts: int, setup: Setup) -> list[Tenant]:
        """Return the tenants, not yet started."""
        ...

    def evidence(self, technique: Technique, tenants: Sequence[Evidence], described: Sequence[Described]) -> Evidence:
        """Return the evidence for the technique over all tenants, with the effective limits.

        `tenants` is the evidence of each tenant, `described` their workers' descriptions, both taken after the load.
        """
        ...

    def files(self) -> dict[str, str]:
        """Return the files for the result directory: manifests as applied, logs."""
        ...

    def close(self) -> None:
        """Restore the device's previous state and delete everything that was created; safe to call twice."""
        ...


@runtime_checkable
class KnowsAhead(Protocol):
    """A place that knows before any measurement whether a technique can be used."""

    def impossible(self, technique: Technique, setup: Setup) -> PreflightError | None:
        """Return why the technique cannot be used; None if no reason is known."""
        ...


@runtime_checkable
class AsksForShares(Protocol):
    """A place whose tenants can ask for shares of the device, equal or not."""

    def refuse_shares(self, technique: Technique, shares: Sequence[float], setup: Setup) -> None:
        """Raise UsageError for shares that the technique cannot be asked for."""
        ...

    def asking(self, technique: Technique, shares: Sequence[float], setup: Setup) -> list[Tenant]:
        """Return tenants that ask for these shares, not yet started; a share of 1 is the whole device."""
        ...


def refuse_unequal(technique: Technique, shares: Sequence[float], instead: str) -> None:
    """Raise UsageError for shares of different sizes; `instead` names techniques that can be asked for them."""
    if max(shares) - min(shares) > EQUAL_WITHIN:
        raise UsageError(
            f"{technique.name} cannot be asked for unequal shares",
            where=f"technique {technique.name}",
            next_step=f"use --shares 1/{len(shares)}, or --tech {instead}",
        )
