"""Throughput by environment, with the interval of each run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gputax.report import wording
from gputax.report.charts.theme import axis, framed, padded, series_scales
from gputax.report.grouping import Measured
from gputax.report.model import Spec

ROW_HEIGHT = 30


def throughput_chart(
    title: str, device: str, cells: Sequence[tuple[str, Measured]], known: Sequence[str]
) -> Spec | None:
    """Return one dot per cell; None where there is nothing to compare it with."""
    rows = [_row(label, cell) for label, cell in cells if wording.finite(_rate(cell)) is not None]
    if len(rows) < 2:
        return None
    numbers = [row[key] for row in rows for key in ("rate", "low", "high") if row[key] is not None]
    labels = [row["label"] for row in rows]
    colours, _ = series_scales(labels, known)
    y: Spec = {"field": "label", "type": "nominal", "sort": labels, "axis": axis(None, grid=True)}
    x: Spec = {
        "field": "rate",
        "type": "quantitative",
        "scale": {"domain": padded(min(numbers), max(numbers), 0.06, right_share=0.3), "nice": False, "zero": False},
        "axis": axis("samples per second (right is better; the axis does not begin at 0)", tickCount=5, grid=False),
    }
    tone = {"field": "label", "type": "nominal", "scale": colours, "legend": None}
    layers: list[Spec] = [
        {
            "transform": [{"filter": "isValid(datum.low)"}],
            "mark": {"type": "rule", "strokeWidth": 5, "strokeCap": "round", "opacity": 0.35},
            "encoding": {"y": y, "x": {**x, "field": "low"}, "x2": {"field": "high"}, "color": tone},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 75, "opacity": 1, "aria": True},
            "encoding": {"y": y, "x": x, "color": tone, "description": {"field": "tip"}},
        },
        {
            "mark": {"type": "text", "align": "left", "dx": 9},
            "encoding": {"y": y, "x": {**x, "field": "right"}, "text": {"field": "text"}},
        },
    ]
    return framed(title, [device], {"data": {"values": rows}, "layer": layers}, height={"step": ROW_HEIGHT})


def _rate(cell: Measured) -> float:
    return cell.benchmark.throughput_samples_per_sec


def _row(label: str, cell: Measured) -> dict[str, Any]:
    shape = cell.run.shapes.get(cell.benchmark.cell)
    low, high = (None, None) if shape is None or shape.rate_ci95 is None else shape.rate_ci95
    interval = "" if low is None else f" (95 % CI {wording.number(low)} to {wording.number(high)})"
    return {
        "label": label,
        "rate": _rate(cell),
        "low": low,
        "high": high,
        "right": max(_rate(cell), high or 0.0),
        "text": wording.number(_rate(cell)),
        "tip": f"{label}: {wording.number(_rate(cell))} samples/s{interval}",
    }
