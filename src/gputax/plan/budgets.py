"""Budgets as data: how much overhead each layer may have, per metric, and how users override them.

A budget limits how much *worse* the other side may be; the metric defines which direction is worse (`better`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gputax.errors import UsageError, unknown_name
from gputax.plan.environment import LAYERS, EnvironmentName
from gputax.plan.metrics import METRICS, OVER_BOUND_SHARE
from gputax.plan.notices import Notice

BudgetUnit = Literal["%", "ms"]


@dataclass(frozen=True)
class Budget:
    """The largest overhead that passes, in percent or in milliseconds."""

    value: float
    unit: BudgetUnit
    source: str


# For layers without their own budget (`LAYERS`).
DEFAULT_BUDGET_PERCENT = 5.0
P99_BUDGET_MS = 2.0
METRIC_BUDGETS: dict[str, Budget] = {
    "latency_p99": Budget(P99_BUDGET_MS, "ms", "p99 may grow by 2 ms"),
    # MLPerf allows 1 % late server queries in total; a single layer may not use more than that.
    OVER_BOUND_SHARE.name: Budget(1.0, "%", "1 % more of the queries may be late"),
}
COMMAND_LINE = "given by --budget"
# Short names: `--budget p99=2ms` is a budget for latency_p99.
SYNONYMS = {
    "mean": "latency_mean",
    "latency": "latency_mean",
    "p50": "latency_p50",
    "p90": "latency_p90",
    "p95": "latency_p95",
    "p99": "latency_p99",
    "kubernetes": "k8s",
}
_MS: dict[str, float] = {"ms": 1.0, "us": 1e-3, "µs": 1e-3, "μs": 1e-3, "s": 1e3}
_AMOUNT = re.compile(r"\+?\s*(\d+(?:\.\d+)?)\s*(%|ms|us|µs|μs|s)")
_EXAMPLES = "e.g. --budget 5%, --budget latency_p99=2ms, --budget proxy=3%"


@dataclass(frozen=True)
class Budgets:
    """The user's budgets; empty means the defaults above."""

    metrics: Mapping[str, Budget] = field(default_factory=dict)
    layers: Mapping[str, Budget] = field(default_factory=dict)
    general: Mapping[str, Budget] = field(default_factory=dict)
    """Budgets without a name, by unit: `5%` replaces every default in percent, `2ms` every default in milliseconds."""

    def for_metric(self, base: str, other: str, metric: str) -> Budget:
        """Return the budget of `metric` from `base` to `other`; the most specific one wins."""
        if metric in self.metrics:
            return self.metrics[metric]
        default = METRIC_BUDGETS.get(metric)
        if default is not None:
            return self._general_for(metric) or default
        added = EnvironmentName.parse(other).beyond(EnvironmentName.parse(base))
        changed = [self.layers[layer] for layer in added if layer in self.layers]
        if "%" in self.general and not changed:
            return self.general["%"]
        known = [LAYERS[name] for name in added if name in LAYERS and name not in self.layers]
        defaults = [
            Budget(layer.budget_percent, "%", f"budget of the layer {layer.name}")
            for layer in known
            if layer.budget_percent is not None
        ]
        if not changed and not defaults:
            return Budget(DEFAULT_BUDGET_PERCENT, "%", "default of 5 %: no layer with a budget of its own between them")
        return max((*changed, *defaults), key=lambda budget: budget.value)

    def over(self, weaker: Budgets) -> Budgets:
        """Merge both; this one wins where both set the same budget, including its budgets without a name.

        A metric named by the weaker one stays named: it is judged even if its scenario would omit it.
        """
        named = {name: self._general_for(name) or budget for name, budget in weaker.metrics.items()}
        layers = {} if "%" in self.general else weaker.layers
        return Budgets({**named, **self.metrics}, {**layers, **self.layers}, {**weaker.general, **self.general})

    def _general_for(self, metric: str) -> Budget | None:
        """Return the budget without a name that applies to this metric, if there is one."""
        default = METRIC_BUDGETS.get(metric)
        if default is None or default.unit == "ms":
            return self.general.get("%" if default is None else "ms")
        return None


def parse_budget(text: str, source: str = COMMAND_LINE) -> tuple[str | None, Budget]:
    """Parse `5%`, `2ms`, `latency_p99=2ms` or `proxy=3%`; the name is None if the budget is for all."""
    name, equals, amount = text.rpartition("=")
    name = SYNONYMS.get(name.strip().lower(), name.strip())
    found = _AMOUNT.fullmatch(amount.strip())
    if not found or (equals and not name):
        raise UsageError(f"{text!r} is not a budget", next_step=_EXAMPLES)
    value, unit = float(found[1]), found[2]
    budget = Budget(value, "%", source) if unit == "%" else Budget(value * _MS[unit], "ms", source)
    if name:
        _refuse_wrong_name(name, budget)
    return name or None, budget


def parse_budgets(texts: Sequence[str], source: str = COMMAND_LINE) -> Budgets:
    """Parse every `--budget` of a command line; no name may be set twice."""
    metrics: dict[str, Budget] = {}
    layers: dict[str, Budget] = {}
    general: dict[str, Budget] = {}
    for text in texts:
        name, budget = parse_budget(text, source)
        target, key = (general, budget.unit) if name is None else (layers if name in LAYERS else metrics, name)
        if key in target:
            raise UsageError(f"two budgets for {name or 'all in ' + budget.unit}", next_step="give each once")
        target[key] = budget
    return Budgets(metrics, layers, general)


def budgets_from_table(table: Mapping[str, object], where: str) -> Budgets:
    """Read a suite's `[budget]` section: `default = "5%"`, and names of metrics and layers as on the command line."""
    texts = []
    for key, value in table.items():
        if not isinstance(value, str):
            raise UsageError(f"{key} = {value!r} is not a budget", where=where, next_step=f'write {key} = "5%"')
        texts.append(value if key == "default" else f"{key}={value}")
    try:
        return parse_budgets(texts, f"given by {where}")
    except UsageError as error:
        raise UsageError(error.what, where=where, next_step=error.next_step) from error


def unused_budgets(named: Mapping[str, Budget], judged: Iterable[str]) -> list[Notice]:
    """Return a notice for each metric named on the command line that was not judged.

    A suite's budgets serve many comparisons, so an unused one is not a mistake.
    """
    return [
        Notice("unused-budget", f"the budget for {name} was not used: no cell is judged by this metric")
        for name in sorted(set(named) - set(judged))
        if named[name].source == COMMAND_LINE
    ]


def _refuse_wrong_name(name: str, budget: Budget) -> None:
    names = (*METRICS, *LAYERS)
    if name not in names:
        raise unknown_name("metric or layer", name, names)
    if budget.unit == "ms" and (name in LAYERS or METRICS[name].unit != "ms"):
        raise UsageError(f"{name} has no budget in milliseconds", next_step=f"e.g. --budget {name}=5%")
