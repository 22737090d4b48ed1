"""Collect the metrics of one cell from a foreign file; bad values and contradictions are skipped with a warning."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from gputax.plan.notices import Notice


@dataclass
class Findings:
    """The metrics found so far; a metric that appears twice must have the same value."""

    metrics: dict[str, float] = field(default_factory=dict)
    notices: list[Notice] = field(default_factory=list)
    _places: dict[str, str] = field(default_factory=dict)
    _refused: set[str] = field(default_factory=set)

    def add(self, metric: str, value: float | None, place: str) -> None:
        """Add a value in the metric's unit, or warn why not."""
        if metric in self._refused:
            return
        if value is None or not math.isfinite(value) or value < 0.0:
            shown = "no number" if value is None else f"{value:g}"
            self.refuse(metric, f"{metric} is {shown} ({place})")
        elif metric in self.metrics and not math.isclose(self.metrics[metric], value, rel_tol=1e-9):
            places = f"{self._places[metric]}; {place}"
            self.refuse(metric, f"{metric} appears twice with different values ({places}): one run per file")
        else:
            self.metrics[metric] = value
            self._places.setdefault(metric, place)

    def refuse(self, metric: str, why: str) -> None:
        """Skip a metric permanently."""
        self.metrics.pop(metric, None)
        self._refused.add(metric)
        self.tell("left-out", f"skipped: {why}")

    def tell(self, code: str, text: str) -> None:
        """Note something about this cell."""
        self.notices.append(Notice(code, text))
