"""Budgets as data: how much overhead each layer may have, per metric, and how users override them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from gputax.errors import UsageError


@dataclass(frozen=True)
class Budget:
    """The largest overhead that passes, in percent or in milliseconds."""

    value: float
    unit: Literal["%", "ms"]
    source: str


# The targets that users wrote down: Kubernetes 1 %, GPU proxy 5 %, full hypervisor 10 %; p99 at most 2 ms more.
LAYER_BUDGET_PERCENT: dict[str, float] = {"container": 1.0, "k8s": 1.0, "proxy": 5.0, "xen": 10.0}
DEFAULT_BUDGET_PERCENT = 5.0
P99_BUDGET_MS = 2.0


def layers_of(environment: str) -> tuple[str, ...]:
    """Return the layers of an environment such as `k8s+proxy`, without the bare machine below them."""
    parts = environment.split("+")
    place = parts[0].split(":")[0]
    return tuple(part for part in (place, *parts[1:]) if part not in ("bare", "ssh"))


def budget_for(base: str, other: str, metric: str) -> Budget:
    """Return the budget of the layers that `other` has beyond `base`: that of the largest of them."""
    added = [layer for layer in layers_of(other) if layer not in layers_of(base)]
    named = [layer for layer in added if layer in LAYER_BUDGET_PERCENT]
    if metric == "latency_p99":
        return Budget(P99_BUDGET_MS, "ms", "p99 may grow by 2 ms")
    if not named:
        return Budget(DEFAULT_BUDGET_PERCENT, "%", "default of 5 %: no layer with a budget of its own between them")
    layer = max(named, key=lambda name: LAYER_BUDGET_PERCENT[name])
    return Budget(LAYER_BUDGET_PERCENT[layer], "%", f"budget of the layer {layer}")


def parse_budget(text: str) -> tuple[str | None, Budget]:
    """Parse `5%`, `2ms`, or `latency_p99=2ms`; the metric is None where the budget is for all."""
    metric, _, amount = text.rpartition("=")
    found = re.fullmatch(r"\+?(\d+(?:\.\d+)?)\s*(%|ms)", amount.strip())
    if not found:
        raise UsageError(f"--budget {text!r} is no budget", next_step="e.g. --budget 5%, or --budget latency_p99=2ms")
    unit: Literal["%", "ms"] = "%" if found[2] == "%" else "ms"
    return metric or None, Budget(float(found[1]), unit, "given by --budget")
