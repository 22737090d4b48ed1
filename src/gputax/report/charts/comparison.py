"""The charts of comparisons: the waterfall of layers, overheads against budgets, the pairs of a duet over time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from gputax.report import wording
from gputax.report.charts.theme import axis, colour, framed, padded, rule, tone_colour
from gputax.report.grouping import Compared
from gputax.report.layers import Step, Waterfall
from gputax.report.model import Spec
from gputax.results.documents.comparison import ComparedMetric, PairSeries

STEP_HEIGHT = 34


def waterfall_chart(title: str, devices: Iterable[str], waterfall: Waterfall) -> Spec:
    """Return the chart of one cell's layers, the root first."""
    order = [waterfall.root, *(step.label for step in waterfall.steps)]
    rows = [_step_row(step) for step in waterfall.steps]
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
    return framed(title, devices, {"data": {"values": rows}, "layer": layers}, height={"step": STEP_HEIGHT})


def _step_row(step: Step) -> dict[str, Any]:
    """Return the bar from the parent's end to this layer's end, with the interval of its own cost around the end."""
    low, high = wording.known_bounds(step.end_ci95, "%")
    cost = wording.overhead(step.own_percent, step.own_ci95, "%")
    mark = f" {wording.MARKS[step.verdict]}" if step.verdict else " derived"
    verdict = wording.WORDS[step.verdict] if step.verdict else "derived from two comparisons"
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
        "tip": f"{step.label} on top of {step.parent}: {cost}, {verdict}",
    }


ROW_HEIGHT = 36
# +2 ms on something of 2 µs lies at 80,000 %: such a row would press all others to the edge, and stays in the table.
FARTHEST_BUDGET_PERCENT = 200.0
# A label may hold one line break: the layer or metric above, what it is of below.
TWO_LINES = "split(datum.label, '\\n')"


def overhead_chart(title: str, rows: Sequence[tuple[str, Compared]]) -> Spec | None:
    """Return the chart of labelled rows; None where no row has a number."""
    data = [drawn for label, row in rows if _has_a_place(drawn := _row(label, row), row.metric)]
    if not data:
        return None
    numbers = [
        0.0,
        *(row[key] for row in data for key in ("overhead", "low", "high", "budget") if row[key] is not None),
    ]
    domain = padded(min(numbers), max(numbers), 0.05)
    # The first of two lines is centred in its row, the second is below.
    baseline = "line-bottom" if any("\n" in row["row"] for row in data) else "middle"
    y: Spec = {
        "field": "row",
        "type": "nominal",
        "sort": [row["row"] for row in data],
        "axis": axis(None, labelExpr=TWO_LINES, labelBaseline=baseline),
    }
    x: Spec = {
        "field": "overhead",
        "type": "quantitative",
        "scale": {"domain": domain, "nice": False, "zero": False},
        "axis": axis("overhead, % (right is worse)", tickCount=6),
    }
    tone = {"field": "colour", "type": "nominal", "scale": None, "legend": None}
    layers: list[Spec] = [
        rule("x", 0.0, color=colour("line")),
        {
            "transform": [{"filter": "isValid(datum.low) && isValid(datum.high)"}],
            "mark": {"type": "rule", "strokeWidth": 5, "strokeCap": "round", "opacity": 0.35},
            "encoding": {"y": y, "x": {**x, "field": "low"}, "x2": {"field": "high"}, "color": tone},
        },
        {
            "transform": [{"filter": "isValid(datum.budget)"}],
            "mark": {"type": "tick", "thickness": 2, "size": ROW_HEIGHT * 0.62, "color": colour("ink")},
            "encoding": {"y": y, "x": {**x, "field": "budget"}},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 75, "opacity": 1, "aria": True},
            "encoding": {"y": y, "x": x, "color": tone, "description": {"field": "tip"}},
        },
    ]
    devices = [device for _, row in rows for device in row.devices]
    return framed(title, devices, {"data": {"values": data}, "layer": layers}, height={"step": ROW_HEIGHT})


def _has_a_place(drawn: dict[str, Any], metric: ComparedMetric) -> bool:
    far = metric.budget_unit == "ms" and (drawn["budget"] or 0.0) > FARTHEST_BUDGET_PERCENT
    return drawn["overhead"] is not None and not far


def _row(label: str, row: Compared) -> dict[str, Any]:
    metric = row.metric
    value, bounds, budget = in_percent(metric)
    low, high = wording.known_bounds(bounds, "%")
    spoken = label.replace("\n", ", ")
    return {
        "row": label,
        "overhead": value,
        "low": low,
        "high": high,
        "budget": budget,
        "colour": tone_colour(metric.verdict),
        "tip": f"{spoken}: {wording.metric_overhead(metric)}, budget {wording.budget(metric)}, "
        f"{wording.WORDS[metric.verdict]}",
    }


def in_percent(metric: ComparedMetric) -> tuple[float | None, wording.Bounds, float | None]:
    """Return overhead, interval and budget in percent; what is judged in milliseconds is taken of the base's value."""
    base, budget = wording.finite(metric.base_value), wording.finite(metric.budget)
    absolute = wording.finite(metric.overhead_absolute)
    if metric.budget_unit != "ms":
        return wording.finite(metric.overhead_percent), metric.ci95_percent, budget
    if absolute is None or not base or base < 0:
        return wording.finite(metric.overhead_percent), metric.ci95_percent, None
    share = 100.0 / base
    bounds = metric.ci95_absolute
    low, high = (None, None) if bounds is None else (wording.finite(bounds[0]), wording.finite(bounds[1]))
    scaled = (None if low is None else low * share, None if high is None else high * share)
    return absolute * share, scaled, None if budget is None else budget * share


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
