"""What each layer costs on its own: from comparisons to the steps of a waterfall; pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gputax.plan.environment import EnvironmentName
from gputax.report.grouping import Compared
from gputax.report.wording import finite, known_bounds
from gputax.results.documents.comparison import ComparedMetric, Verdict
from gputax.stats.estimates import log_of_lost_percent, log_of_percent, lost_percent_of_log, percent_of_log

DERIVED_NOTE = (
    "Derived: computed from two comparisons with the same base; the interval combines both (MOVER, as if independent, "
    "which is conservative where they share the base)."
)


@dataclass(frozen=True)
class Step:
    """One layer over the one below it, in percent."""

    label: str
    parent: str
    start_percent: float
    """The parent's cost over the root."""
    end_percent: float
    """This layer's cost over the root."""
    own_percent: float
    own_ci95: tuple[float | None, float | None]
    end_ci95: tuple[float | None, float | None]
    """The interval of its own cost, placed at its end."""
    verdict: Verdict | None
    """None where the step is derived: only what was compared is judged."""
    paired: bool

    @property
    def derived(self) -> bool:
        """Whether the step comes from two comparisons instead of one."""
        return self.verdict is None


@dataclass(frozen=True)
class Waterfall:
    """The layers of one cell, each on top of its parent."""

    root: str
    steps: tuple[Step, ...]

    @property
    def stacked(self) -> bool:
        """Whether any layer is known to lie on another one instead of on the root."""
        return any(step.parent != self.root for step in self.steps)


def waterfalls(rows: Sequence[Compared]) -> tuple[Waterfall, ...]:
    """Return the layers of one cell and metric; comparisons that share no side give one waterfall each."""
    usable = [row for row in rows if _log_cost(row.metric) is not None and row.metric.verdict != "not comparable"]
    found = [_waterfall(part) for part in _connected(usable)]
    return tuple(waterfall for waterfall in found if waterfall.steps)


def _connected(rows: Iterable[Compared]) -> list[list[Compared]]:
    """Return the rows in parts that share sides."""
    parts: list[tuple[set[str], list[Compared]]] = []
    for row in rows:
        labels, members = {row.base.label, row.other.label}, [row]
        apart = []
        for part_labels, part_members in parts:
            if part_labels & labels:
                labels, members = labels | part_labels, [*part_members, *members]
            else:
                apart.append((part_labels, part_members))
        parts = [*apart, (labels, members)]
    return [members for _, members in parts]


def _waterfall(rows: list[Compared]) -> Waterfall:
    sides = [side for row in rows for side in (row.base, row.other)]
    layers = {side.label: EnvironmentName.parse(side.environment).layers for side in sides}
    # A base is named before what is compared with it, so that of two equally bare sides the base is the root.
    root = min(layers, key=lambda label: (len(layers[label]), label not in {row.base.label for row in rows}))
    # Of two comparisons of the same sides the paired one counts: it is written last.
    edges = {(row.base.label, row.other.label): row.metric for row in sorted(rows, key=lambda row: row.metric.paired)}
    levels = _levels(root, edges)
    steps: list[Step] = []
    ends = {root: 0.0}
    lost = any(row.metric.loss == "throughput" for row in rows)
    in_percent = lost_percent_of_log if lost else percent_of_log

    def climb(parent: str) -> None:
        for label in layers:
            if label in ends or _parent(label, root, layers) != parent:
                continue
            own, bounds, metric = _own_cost(root, parent, label, edges, levels)
            ends[label] = ends[parent] + own
            around = (None if bound is None else ends[parent] + bound for bound in bounds)
            steps.append(
                Step(
                    label=label,
                    parent=parent,
                    start_percent=in_percent(ends[parent]),
                    end_percent=in_percent(ends[label]),
                    own_percent=in_percent(own),
                    own_ci95=_percents(bounds, in_percent),
                    end_ci95=_percents((next(around), next(around)), in_percent),
                    verdict=None if metric is None else metric.verdict,
                    paired=metric is not None and metric.paired,
                )
            )
            climb(label)

    climb(root)
    return Waterfall(root, tuple(steps))


def _parent(label: str, root: str, layers: dict[str, tuple[str, ...]]) -> str | None:
    """Return the side with the most of this one's layers and none beside; the root where there is none."""
    if label == root:
        return None
    own = set(layers[label])
    below = [each for each in layers if each != label and set(layers[each]) < own]
    return max(below, key=lambda each: (len(layers[each]), each == root), default=root)


def _levels(root: str, edges: dict[tuple[str, str], ComparedMetric]) -> dict[str, float]:
    """Return each side's log cost over the root, along whatever was compared."""
    levels = {root: 0.0}
    reached = True
    while reached:
        reached = False
        for (base, other), metric in edges.items():
            cost = _log_cost(metric) or 0.0
            if base in levels and other not in levels:
                levels[other], reached = levels[base] + cost, True
            elif other in levels and base not in levels:
                levels[base], reached = levels[other] - cost, True
    return levels


LogBounds = tuple[float | None, float | None]


def _own_cost(
    root: str, parent: str, label: str, edges: dict[tuple[str, str], ComparedMetric], levels: dict[str, float]
) -> tuple[float, LogBounds, ComparedMetric | None]:
    """Return a layer's log cost over its parent: as compared, else from what both were compared with."""
    direct = edges.get((parent, label))
    if direct is not None:
        return _log_cost(direct) or 0.0, _log_bounds(direct), direct
    own = levels[label] - levels[parent]
    upper, lower = edges.get((root, label)), edges.get((root, parent))
    if upper is None or lower is None:
        return own, (None, None), None
    return own, _difference_bounds(own, levels[label], _log_bounds(upper), levels[parent], _log_bounds(lower)), None


def _difference_bounds(own: float, a: float, a_bounds: LogBounds, b: float, b_bounds: LogBounds) -> LogBounds:
    """Return the interval of a - b from the two intervals (MOVER, Zou and Donner 2008)."""
    (a_low, a_high), (b_low, b_high) = a_bounds, b_bounds
    low = None if a_low is None or b_high is None else own - math.hypot(a - a_low, b_high - b)
    high = None if a_high is None or b_low is None else own + math.hypot(a_high - a, b - b_low)
    return low, high


def _log_cost(metric: ComparedMetric) -> float | None:
    return _log(finite(metric.overhead_percent), metric)


def _log_bounds(metric: ComparedMetric) -> LogBounds:
    low, high = known_bounds(metric.ci95_percent, "%")
    return _log(low, metric), _log(high, metric)


def _log(percent: float | None, metric: ComparedMetric) -> float | None:
    """Return the log of the cost ratio: the metric counts time that is added, or throughput that is lost."""
    if percent is None:
        return None
    if metric.loss == "throughput":
        return None if percent >= 100.0 else log_of_lost_percent(percent)
    return None if percent <= -100.0 else log_of_percent(percent)


def _percents(bounds: LogBounds, in_percent: Callable[[float], float]) -> LogBounds:
    low, high = (None if bound is None else in_percent(bound) for bound in bounds)
    return low, high
