"""The seam of sharing: a place switches a device to a technique, gives each tenant its environment, and goes back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from gputax.environments.described import Described
from gputax.environments.environment import Environment
from gputax.environments.evidence import Evidence
from gputax.errors import PreflightError
from gputax.plan.cells import Setup
from gputax.plan.techniques import Entitlement, Technique

Say = Callable[[str], None]


@dataclass(frozen=True)
class Tenant:
    """One of N workers that share the device: where it is started, with which setup, and what it may use."""

    environment: Environment
    setup: Setup
    """The experiment's setup with this tenant's threads and wait policy filled in."""
    entitlement: Entitlement
    metrics_address: str = ""
    """HOST:PORT where Prometheus finds this tenant's metrics; empty where it serves none."""


@dataclass(frozen=True)
class Switched:
    """The device offers the technique now, as the place itself says."""

    seconds: float
    facts: Mapping[str, Any] = field(default_factory=dict)


class SharedPlace(Protocol):
    """Where tenants share a device. `measure` opens one for an experiment and always closes it."""

    name: str
    """`bare` or `k8s`."""

    def switch(self, technique: Technique, parts: int, say: Say) -> Switched:
        """Bring the device to the technique and return when it is really offered; raises PreflightError if it never is.

        Nothing happens where it is there already. `parts` is how many tenants the device must take.
        """
        ...

    def tenants(self, technique: Technique, count: int, parts: int, setup: Setup) -> list[Tenant]:
        """Return the tenants; none of them is started yet."""
        ...

    def evidence(self, technique: Technique, tenants: Sequence[Evidence], described: Sequence[Described]) -> Evidence:
        """Return what proves the technique over all tenants, with the effective limits.

        `tenants` are the tenants' own evidences, `described` their workers' descriptions, both taken after the load.
        """
        ...

    def files(self) -> dict[str, str]:
        """Return what shall be kept in the result directory: manifests as applied, logs."""
        ...

    def close(self) -> None:
        """Put the device back to what it was and remove all that was made; may be called twice."""
        ...


@runtime_checkable
class KnowsAhead(Protocol):
    """A place that can tell at once, before anything is measured, whether a technique can be used."""

    def impossible(self, technique: Technique, setup: Setup) -> PreflightError | None:
        """Return why the technique cannot be used, None where nothing speaks against it."""
        ...
