"""The waterfall: each layer's own cost, on top of what the layers below it cost already."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gputax.report import wording
from gputax.report.charts.theme import axis, colour, framed, padded, rule, tone_colour
from gputax.report.layers import Step, Waterfall
from gputax.report.model import Spec

ROW_HEIGHT = 34


def waterfall_chart(title: str, devices: Iterable[str], waterfall: Waterfall) -> Spec:
    """Return the chart of one cell's layers, the root first."""
    order = [waterfall.root, *(step.label for step in waterfall.steps)]
    rows = [_row(step) for step in waterfall.steps]
    numbers = [0.0, *(row[key] for row in rows for key in ("start", "end", "low", "high") if row[key] is not None)]
    # The own cost is written to the right of the bar, so the axis is longer than the data.
    domain = padded(min(numbers), max(numbers), 0.03, right_share=0.42)
    y: Spec = {"field": "layer", "type": "nominal", "sort": order, "scale": {"domain": order}, "axis": axis(None)}
    x: Spec = {
        "field": "start",
        "type": "quantitative",
        "scale": {"domain": domain, "nice": False, "zero": False},
        "axis": axis(f"cost over {waterfall.root}, %", tickCount=5),
    }
    tone = {"field": "colour", "type": "nominal", "scale": None, "legend": None}
    layers: list[Spec] = [
        rule("x", 0.0, color=colour("line")),
        {
            # From the parent's row down to this one, at the height where the parent ends.
            "mark": {"type": "rule", "color": colour("line"), "strokeDash": [2, 2]},
            "encoding": {"x": x, "y": {**y, "field": "parent"}, "y2": {"field": "layer"}},
        },
        {
            "mark": {"type": "bar", "height": {"band": 0.5}, "opacity": 0.85, "aria": True},
            "encoding": {"y": y, "x": x, "x2": {"field": "end"}, "color": tone, "description": {"field": "tip"}},
        },
        {
            "transform": [{"filter": "isValid(datum.low) && isValid(datum.high)"}],
            "mark": {"type": "rule", "color": colour("ink"), "strokeWidth": 1.5},
            "encoding": {"y": y, "x": {**x, "field": "low"}, "x2": {"field": "high"}},
        },
        {
            "mark": {"type": "text", "align": "left", "dx": 7, "fontWeight": 600},
            "encoding": {"y": y, "x": {**x, "field": "right"}, "text": {"field": "text"}},
        },
        {
            "data": {"values": [{"layer": waterfall.root, "start": 0.0, "text": "0, the base"}]},
            "mark": {"type": "text", "align": "left", "dx": 7, "color": colour("muted")},
            "encoding": {"y": y, "x": x, "text": {"field": "text"}},
        },
    ]
    return framed(title, devices, {"data": {"values": rows}, "layer": layers}, height={"step": ROW_HEIGHT})


def _row(step: Step) -> dict[str, Any]:
    """Return the bar from the parent's end to this layer's end, with the interval of its own cost around the end."""
    start = 1.0 + step.start_percent / 100.0
    low, high = (
        None if bound is None else 100.0 * (start * (1.0 + bound / 100.0) - 1.0)
        for bound in wording.known_bounds(step.own_ci95, "%")
    )
    cost = wording.overhead(step.own_percent, step.own_ci95, "%")
    mark = f" {wording.MARKS[step.verdict]}" if step.verdict else " derived"
    return {
        "layer": step.label,
        "parent": step.parent,
        "start": step.start_percent,
        "end": step.end_percent,
        "low": low,
        "high": high,
        "right": max(value for value in (step.start_percent, step.end_percent, high) if value is not None),
        "text": cost.split(" (")[0] + mark,
        "colour": tone_colour(step.verdict),
        "tip": f"{step.label} on top of {step.parent}: {cost}, {step.verdict or 'derived from two comparisons'}",
    }
