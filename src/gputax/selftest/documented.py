"""The differences between a driver and libvgpu that the documentation states, each with its reason; pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

NOT_SUPPORTED, UNSUPPORTED_LIMIT = 801, 215
# What the proxy does not carry is not there, whatever the device has: out_of_reach in native/proxy/serve_contexts.c.
HIDDEN_ATTRIBUTES = (
    83, 88, 89, 91, 92, 93, 94, 100, 101, 102, 103, 116, 119, 120, 122, 123, 124, 125, 128, 132,
)  # fmt: skip


def _is_hidden(bare: Any, proxied: Any) -> bool:
    return bool(bare[0] == proxied[0] == 0 and proxied[1] == 0)


def _is_refused(code: int) -> Callable[[Any, Any], bool]:
    return lambda bare, proxied: (proxied[0] if isinstance(proxied, list) else proxied) == code


def _lacks_calls(bare: Any, proxied: Any) -> bool:
    """Whether every version that differs is one whose call the driver has and libvgpu says that it has not."""
    pairs = [(one, other) for one, other in zip(bare, proxied, strict=True) if one != other]
    return all(one[:2] == [0, 1] and other[1] == 0 for one, other in pairs)


@dataclass(frozen=True)
class Difference:
    """One stated difference: where, what the proxied side must say then, and why."""

    group: str
    name: str
    """A regular expression for the whole name."""
    holds: Callable[[Any, Any], bool]
    reason: str


DOCUMENTED = (
    Difference(
        "device", f"attribute ({'|'.join(map(str, HIDDEN_ATTRIBUTES))})", _is_hidden,
        "calls that the proxy does not carry (docs/proxy.md): the device says that it lacks them",
    ),
    Difference("names", r"cu\w+", _lacks_calls, "libvgpu does not carry it, and says so: not found (docs/proxy.md)"),
    Difference("device", r"limit \d+", _is_refused(UNSUPPORTED_LIMIT), "limits are the proxy's, not the program's"),
    Difference(
        "host-memory", "registered for kernels", _is_refused(NOT_SUPPORTED),
        "pages that a program already has cannot be shared with the proxy afterwards (docs/proxy.md)",
    ),
    Difference(
        "host-memory", "unregistered after that", lambda bare, proxied: bare == 0 and proxied == 713,
        "it was not registered",
    ),
    Difference(
        "table-others", r"(f8cff951|6e163fbe) there", lambda bare, proxied: bare is True and proxied is False,
        "a table for profilers, or one that would skip the runtime's start (docs/cuda-runtime.md)",
    ),
)  # fmt: skip


def documented_difference(group: str, name: str, bare: Any, proxied: Any) -> str:
    """Return why the documentation says that these two differ; empty if it does not."""
    for each in DOCUMENTED:
        if each.group == group and re.fullmatch(each.name, name) and each.holds(bare, proxied):
            return each.reason
    return ""
