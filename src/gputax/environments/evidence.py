"""Evidence that an environment's layer was active: the verdict, the reasons against it, and the facts behind both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gputax.environments.described import Described

ANSWER_KEYS = ("layer", "active", "reasons", "warning")


@dataclass(frozen=True)
class Evidence:
    """A typed view of the document stored with a result; the document itself is never changed."""

    stored: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        layer: str,
        reasons: Sequence[str],
        facts: Mapping[str, Any] | None = None,
        *,
        warning: str = "",
        list_reasons: bool = False,
    ) -> Evidence:
        """Return the evidence for a layer, which counts as active if there is no reason against it.

        `list_reasons` stores the list even if it is empty, as the documents of the proxy and of sharing do.
        """
        listed = {"reasons": list(reasons)} if reasons or list_reasons else {}
        warned = {"warning": warning} if warning else {}
        return cls({"layer": layer, "active": not reasons, **listed, **(facts or {}), **warned})

    def below(
        self, layer: str, reasons: Sequence[str], facts: Mapping[str, Any] | None = None, *, list_reasons: bool = False
    ) -> Evidence:
        """Return the evidence for a layer above this one: the facts of both layers and the verdict of the upper one."""
        lower = {name: value for name, value in self.stored.items() if name != "reasons"}
        return Evidence({**lower, **Evidence.of(layer, reasons, facts, list_reasons=list_reasons).stored})

    def to_dict(self) -> dict[str, Any]:
        """Return the document as it is stored."""
        return dict(self.stored)

    @property
    def layer(self) -> str:
        """The layer in question; `none` for the bare machine."""
        return str(self.stored.get("layer") or "")

    @property
    def active(self) -> bool | None:
        """Whether it was active; None if unknown."""
        active = self.stored.get("active")
        return active if isinstance(active, bool) else None

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons why it does not count as active."""
        return tuple(str(reason) for reason in self.stored.get("reasons") or ())

    @property
    def why_not(self) -> str:
        """All reasons in one line, for a layer that is not proven."""
        return "; ".join(self.reasons) or "no evidence"

    @property
    def warning(self) -> str:
        """A limit on what the numbers mean although the layer was active; empty if there is none."""
        return str(self.stored.get("warning") or "")

    @property
    def facts(self) -> dict[str, Any]:
        """The facts behind the verdict: pods, process ids, limits, counters."""
        return {name: value for name, value in self.stored.items() if name not in ANSWER_KEYS}

    def fact(self, name: str) -> Any:
        """Return one of the facts; None if it was not recorded."""
        return self.stored.get(name)


def unproven(tenants: Sequence[Evidence]) -> list[str]:
    """List the tenants without proof of the layer, with the reasons."""
    return [
        f"tenant {number}: {reason}"
        for number, evidence in enumerate(tenants, start=1)
        if not evidence.active
        for reason in evidence.reasons or ("no evidence",)
    ]


@dataclass(frozen=True)
class Proven:
    """One worker after its load: its environment's evidence and the description on which that is based."""

    evidence: Evidence
    described: Described
