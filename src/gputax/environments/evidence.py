"""What proves that an environment's layer was active: the answer, what speaks against it, and the facts behind both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gputax.environments.described import Described

ANSWER_KEYS = ("layer", "active", "reasons", "warning")


@dataclass(frozen=True)
class Evidence:
    """A typed view of the document that is stored with a result; the document itself is never rewritten."""

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
        """Return the evidence of a layer, which was active if there is no reason against it.

        `list_reasons` stores the list also where it is empty, as the documents of the proxy and of sharing have it.
        """
        listed = {"reasons": list(reasons)} if reasons or list_reasons else {}
        warned = {"warning": warning} if warning else {}
        return cls({"layer": layer, "active": not reasons, **listed, **(facts or {}), **warned})

    def below(
        self, layer: str, reasons: Sequence[str], facts: Mapping[str, Any] | None = None, *, list_reasons: bool = False
    ) -> Evidence:
        """Return the evidence of a layer above this one: both layers' facts, with the answer of the upper one."""
        lower = {name: value for name, value in self.stored.items() if name != "reasons"}
        return Evidence({**lower, **Evidence.of(layer, reasons, facts, list_reasons=list_reasons).stored})

    def to_dict(self) -> dict[str, Any]:
        """Return the document as it is stored."""
        return dict(self.stored)

    @property
    def layer(self) -> str:
        """The layer that was looked for; `none` for the bare machine."""
        return str(self.stored.get("layer") or "")

    @property
    def active(self) -> bool | None:
        """Whether it was active; None where nothing tells."""
        told = self.stored.get("active")
        return told if isinstance(told, bool) else None

    @property
    def reasons(self) -> tuple[str, ...]:
        """What speaks against it."""
        return tuple(str(reason) for reason in self.stored.get("reasons") or ())

    @property
    def why_not(self) -> str:
        """All reasons in one line, for a layer that is not proven."""
        return "; ".join(self.reasons) or "nothing proves it"

    @property
    def warning(self) -> str:
        """What limits the meaning of a number that is otherwise proven; empty where nothing does."""
        return str(self.stored.get("warning") or "")

    @property
    def facts(self) -> dict[str, Any]:
        """All that the answer rests on: pods, process numbers, limits, counters."""
        return {name: value for name, value in self.stored.items() if name not in ANSWER_KEYS}

    def fact(self, name: str) -> Any:
        """Return one of the facts; None where it was not taken."""
        return self.stored.get(name)


def unproven(tenants: Sequence[Evidence]) -> list[str]:
    """Say of which of several tenants nothing proves the layer, and why."""
    return [
        f"tenant {number}: {reason}"
        for number, evidence in enumerate(tenants, start=1)
        if not evidence.active
        for reason in evidence.reasons or ("nothing proves it",)
    ]


@dataclass(frozen=True)
class Proven:
    """One worker after its load: the evidence of its environment and the description that it rests on."""

    evidence: Evidence
    described: Described
