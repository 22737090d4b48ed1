"""Budgets as data: how much overhead each layer may have, per metric, and how users override them.

A budget limits how much *worse* the other side may be; the metric defines which direction is worse (`better`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from gputax.errors import UsageError, unknown_name
from gputax.plan.environment import LAYERS, EnvironmentName, is_environment, layer_named
from gputax.plan.metrics import METRICS, OVER_BOUND_SHARE
from gputax.plan.notices import Notice

BudgetUnit = Literal["%", "ms"]


@dataclass(frozen=True)
class Budget:
    """The largest overhead that passes, in percent or in milliseconds."""

    value: float
    unit: BudgetUnit
    source: str
    for_short: Budget | None = None
    """What applies to requests shorter than `SHORT_REQUEST_MS` instead; None: the same."""

    def at(self, request_ms: float | None) -> Budget:
        """Return the budget for requests that typically take this long on the base side."""
        short = request_ms is not None and request_ms < SHORT_REQUEST_MS
        return self.for_short if short and self.for_short is not None else self


# For layers without their own budget (`LAYERS`).
DEFAULT_BUDGET_PERCENT = 5.0
P99_BUDGET_MS = 2.0
# Two milliseconds are 17 % of a model's p99 of 12 ms, and ten times the p99 of an operation of 0.2 ms. Below this, a
# tail may grow by twice the percentage that the layer may cost: less than what 2 ms allow a model.
SHORT_REQUEST_MS = 1.0
P99_SHORT_FACTOR = 2.0
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
    "ttft": "ttft_p50",
    "tpot": "tpot_p50",
    "itl": "itl_p99",
    "kubernetes": "k8s",
    "hypervisor": "xen",
}
_MS: dict[str, float] = {"ms": 1.0, "us": 1e-3, "µs": 1e-3, "μs": 1e-3, "s": 1e3}
_AMOUNT = re.compile(r"\+?\s*(\d+(?:\.\d+)?)\s*(%|ms|us|µs|μs|s)")
_EXAMPLES = "e.g. --budget 5%, --budget p99=2ms, --budget proxy=3%, --budget k8s:p99=1ms"


@dataclass(frozen=True)
class Budgets:
    """The user's budgets; empty means the defaults above."""

    metrics: Mapping[str, Budget] = field(default_factory=dict)
    layers: Mapping[str, Budget] = field(default_factory=dict)
    """By layer (`proxy`) or environment (`k8s+proxy`)."""
    general: Mapping[str, Budget] = field(default_factory=dict)
    """Budgets without a name, by unit: `5%` replaces every default in percent, `2ms` every default in milliseconds."""
    scoped: Mapping[tuple[str, str], Budget] = field(default_factory=dict)
    """By layer or environment, and metric: `k8s:latency_p99`. A layer's is that of environments with it on top."""

    def for_metric(self, base: str, other: str, metric: str) -> Budget:
        """Return the budget of `metric` from `base` to `other`; the most specific one wins."""
        for scope in _scopes(base, other):
            if (scope, metric) in self.scoped:
                return self.scoped[scope, metric]
        if metric in self.metrics:
            return self.metrics[metric]
        if metric == "latency_p99":
            return self._for_p99(base, other)
        if metric in METRIC_BUDGETS:
            return self._general_for(metric) or METRIC_BUDGETS[metric]
        return self._for_layers(base, other)

    def _for_p99(self, base: str, other: str) -> Budget:
        if "ms" in self.general:
            return self.general["ms"]
        percent = self._for_layers(base, other)
        source = f"requests below 1 ms: twice the {percent.value:g} % of the mean, {percent.source}"
        return replace(METRIC_BUDGETS["latency_p99"], for_short=Budget(P99_SHORT_FACTOR * percent.value, "%", source))

    def _for_layers(self, base: str, other: str) -> Budget:
        """Return the percentage of the environment, else the largest of the layers that it adds."""
        if other in self.layers:
            return self.layers[other]
        added = _layers_between(base, other)
        changed = [self.layers[layer] for layer in added if layer in self.layers]
        if "%" in self.general and not changed:
            return self.general["%"]
        known = [layer for name in added if name not in self.layers and (layer := layer_named(name)) is not None]
        defaults = [
            Budget(layer.budget_percent, "%", f"budget of the layer {layer.name}")
            for layer in known
            if layer.budget_percent is not None
        ]
        if not changed and not defaults:
            return Budget(DEFAULT_BUDGET_PERCENT, "%", "default of 5 %: no layer with a budget of its own between them")
        return max((*changed, *defaults), key=lambda budget: budget.value)

    def named(self, base: str, other: str) -> frozenset[str]:
        """Return the metrics that a budget names for this comparison: they are judged in any case."""
        scopes = _scopes(base, other)
        return frozenset((*self.metrics, *(metric for scope, metric in self.scoped if scope in scopes)))

    def demanded(self, base: str, other: str) -> frozenset[str]:
        """Return those of them that the command line names; a suite's serve many comparisons."""
        named = self.named(base, other)
        return frozenset(name for name in named if self.for_metric(base, other, name).source == COMMAND_LINE)

    def over(self, weaker: Budgets) -> Budgets:
        """Merge both; this one wins where both set the same budget, including its budgets without a name.

        A metric named by the weaker one stays named: it is judged even if its scenario would omit it.
        """
        named = {name: self._general_for(name) or budget for name, budget in weaker.metrics.items()}
        layers = {} if "%" in self.general else weaker.layers
        return Budgets(
            {**named, **self.metrics},
            {**layers, **self.layers},
            {**weaker.general, **self.general},
            {**weaker.scoped, **self.scoped},
        )

    def _general_for(self, metric: str) -> Budget | None:
        """Return the budget without a name that applies to this metric, if there is one."""
        default = METRIC_BUDGETS.get(metric)
        if default is None or default.unit == "ms":
            return self.general.get("%" if default is None else "ms")
        return None


def _scopes(base: str, other: str) -> tuple[str, ...]:
    """Return the names under which a budget may be for this comparison alone: the environment, its topmost layer."""
    return (other, *_layers_between(base, other)[-1:])


def parse_budget(text: str, source: str = COMMAND_LINE) -> tuple[str | None, Budget]:
    """Parse `5%`, `2ms`, `p99=2ms`, `proxy=3%` or `k8s:p99=1ms`; the name is None if the budget is for all."""
    name, equals, amount = text.rpartition("=")
    name = _full_name(name.strip())
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
    given: dict[str, Budget] = {}
    for text in texts:
        name, budget = parse_budget(text, source)
        key = name or budget.unit
        if key in given:
            raise UsageError(f"two budgets for {name or 'all in ' + budget.unit}", next_step="give each once")
        given[key] = budget
    metrics = {name: budget for name, budget in given.items() if name in METRICS}
    general: dict[str, Budget] = {unit: given[unit] for unit in ("%", "ms") if unit in given}
    scoped = {scope: budget for name, budget in given.items() if (scope := _scope_of(name)) is not None}
    layers = {name: budget for name, budget in given.items() if _has_layers(name) and _scope_of(name) is None}
    return Budgets(metrics, layers, general, scoped)


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


def unused_scopes(budgets: Budgets, compared: Sequence[tuple[str, str]]) -> list[Notice]:
    """Return a notice for each layer or environment named on the command line that no comparison adds to its base."""
    used = {each for base, other in compared for each in (other, *_layers_between(base, other))}
    named = {**budgets.layers, **{scope: budget for (scope, _), budget in budgets.scoped.items()}}
    text = "the budget for {} was not used: nothing that is compared has it and its base has not"
    return [
        Notice("unused-budget", text.format(name))
        for name, budget in sorted(named.items())
        if name not in used and budget.source == COMMAND_LINE
    ]


def _layers_between(base: str, other: str) -> tuple[str, ...]:
    return EnvironmentName.parse(other).beyond(EnvironmentName.parse(base))


def _full_name(name: str) -> str:
    """Return `k8s:latency_p99` for `kubernetes:p99`."""
    scope, colon, metric = name.rpartition(":")
    full = SYNONYMS.get(metric.lower(), metric)
    if not colon or full not in METRICS:
        return SYNONYMS.get(name.lower(), name)
    return f"{SYNONYMS.get(scope.lower(), scope)}:{full}"


def _scope_of(name: str) -> tuple[str, str] | None:
    scope, _, metric = name.rpartition(":")
    return (scope, metric) if scope and metric in METRICS else None


def _has_layers(name: str) -> bool:
    if layer_named(name) is not None:
        return True
    environment = EnvironmentName.parse(name)
    # Of an unknown runtime nobody could tell a misspelt metric: `k8s:p98`.
    known = not environment.runtime or layer_named(environment.runtime) is not None
    return known and is_environment(name) and environment.layers != ()


def _refuse_wrong_name(name: str, budget: Budget) -> None:
    scope, metric = _scope_of(name) or (name, name)
    for each in dict.fromkeys((scope, metric)):
        if each not in METRICS and not _has_layers(each):
            raise unknown_name("metric, layer or environment", each, (*METRICS, *LAYERS))
    if budget.unit == "ms" and (metric not in METRICS or METRICS[metric].unit != "ms"):
        raise UsageError(f"{name} has no budget in milliseconds", next_step=f"e.g. --budget {name}=5%")
    if scope != metric and scope in METRICS:
        raise UsageError(f"{name} names two metrics", next_step=_EXAMPLES)
