"""The pairs of a duet over time: whether the overhead held still while it was measured."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gputax.report import wording
from gputax.report.charts.theme import axis, colour, framed, padded, rule
from gputax.report.grouping import Compared
from gputax.report.model import Spec
from gputax.results.documents.comparison import PairSeries

MOST_POINTS = 400


def pairs_chart(title: str, devices: Iterable[str], series: PairSeries, row: Compared | None) -> Spec | None:
    """Return a dot per pair, with the mean's interval and the budget; None where no pair has a number."""
    known = [
        {"s": time_s, "percent": percent, "first": "other side first" if b_first else "base first"}
        for time_s, percent, b_first in zip(series.time_s, series.overhead_percent, series.b_first, strict=False)
        if wording.finite(time_s) is not None and wording.finite(percent) is not None
    ]
    if not known:
        return None
    shown = [known[int(i)] for i in np.linspace(0, len(known) - 1, min(len(known), MOST_POINTS))]
    metric = None if row is None else row.metric
    low, high = (None, None) if metric is None else wording.known_bounds(metric.ci95_percent, "%")
    budget = wording.finite(metric.budget) if metric is not None and metric.budget_unit == "%" else None
    numbers = [float(value["percent"]) for value in shown] + [value for value in (0.0, low, high, budget) if value]
    y: Spec = {
        "field": "percent",
        "type": "quantitative",
        "scale": {"domain": padded(min(0.0, *numbers), max(0.0, *numbers)), "nice": False, "zero": False},
        "axis": axis("overhead of the pair, %", tickCount=5),
    }
    layers: list[Spec] = [rule("y", 0.0, color=colour("line"))]
    if low is not None and high is not None:
        band = {"mark": {"type": "rect", "color": colour("derived"), "opacity": 0.25}}
        layers.append(
            {**band, "data": {"values": [{}]}, "encoding": {"y": {"datum": low}, "y2": {"datum": high}}},
        )
    if budget is not None:
        layers.append(rule("y", budget, color=colour("fail"), strokeDash=[6, 3], strokeWidth=1.5))
    layers.append(_dots(y))
    return framed(title, devices, {"data": {"values": shown}, "layer": layers}, height=170)


def _dots(y: Spec) -> Spec:
    orders = ["base first", "other side first"]
    return {
        "mark": {"type": "point", "filled": True, "size": 22, "opacity": 0.75},
        "encoding": {
            "x": {
                "field": "s",
                "type": "quantitative",
                "scale": {"nice": False, "zero": False},
                "axis": axis("seconds since the first pair", grid=False, tickCount=6),
            },
            "y": y,
            "color": {
                "field": "first",
                "type": "nominal",
                "scale": {"domain": orders, "range": [colour("series 2"), colour("series 3")]},
            },
        },
    }
