"""The charts of runs: throughput by environment, the whole distribution of latencies, telemetry of host and device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gputax.report import wording
from gputax.report.charts.theme import SMALL_WIDTH, axis, colour, framed, padded, series_scales
from gputax.report.distributions import Curve
from gputax.report.grouping import Measured
from gputax.report.model import Spec
from gputax.report.sources import Telemetry
from gputax.report.wording import finite

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


# 1/(1-p): the axis of nines.
TICKS = (1, 2, 10, 100, 1000, 10_000, 100_000)
# Above this ratio a linear axis shows the slowest requests and nothing else.
LOG_ABOVE = 12.0


def latency_chart(title: str, devices: Iterable[str], curves: Mapping[str, Curve], known: Sequence[str]) -> Spec | None:
    """Return one curve per label, as far out as its samples allow; None where there is none."""
    if not curves:
        return None
    values: list[dict[str, Any]] = [
        {"label": label, "nines": 1.0 / (1.0 - fraction), "ms": latency_ms}
        for label, curve in curves.items()
        for fraction, latency_ms in zip(curve.fractions, curve.latency_ms, strict=True)
    ]
    colours, dashes = series_scales(list(curves), known)
    slowest, fastest = max(value["ms"] for value in values), min(value["ms"] for value in values)
    logarithmic = fastest > 0.0 and slowest / fastest > LOG_ABOVE
    furthest = max(value["nines"] for value in values)
    return framed(
        title,
        devices,
        {
            "data": {"values": values},
            "mark": {"type": "line", "strokeWidth": 2, "interpolate": "linear"},
            "encoding": {
                "x": {
                    "field": "nines",
                    "type": "quantitative",
                    "scale": {"type": "log", "domain": [1, furthest], "nice": False},
                    "axis": axis(
                        "percentile of requests",
                        values=[tick for tick in TICKS if tick <= furthest],
                        labelExpr="datum.value == 1 ? 'min' : 'p' + format(100 - 100 / datum.value, '.6~f')",
                    ),
                },
                "y": {
                    "field": "ms",
                    "type": "quantitative",
                    "scale": {"type": "log" if logarithmic else "linear", "zero": False, "nice": True},
                    "axis": axis("latency, ms", tickCount=5),
                },
                "color": {"field": "label", "type": "nominal", "scale": colours},
                "strokeDash": {"field": "label", "type": "nominal", "scale": dashes},
            },
        },
        height=200,
    )


MOST_POINTS = 120
# All are shares of the whole, so that one axis serves them: GPU time, or time of the CPUs the worker may use.
SERIES: dict[str, tuple[str, str]] = {
    "gpu_utilisation_percent": ("GPU", "series 4"),
    "own_busy_percent": ("own CPU", "series 2"),
    "others_busy_percent": ("other processes", "series 3"),
    "steal_percent": ("stolen", "series 6"),
}


def telemetry_chart(title: str, device: str, series: Telemetry) -> Spec | None:
    """Return the shares over the seconds of one cell; None where fewer than two moments were sampled."""
    times = series.get("time_ns", [])
    start = next((time for time in times if time is not None), 0)
    rows = np.unique(np.linspace(0, len(times) - 1, MOST_POINTS).astype(int)).tolist() if times else []
    shown = {name: entry for name, entry in SERIES.items() if any(finite(v) is not None for v in series.get(name, []))}
    values = [
        {"s": (time - start) / 1e9, "percent": value, "what": label}
        for name, (label, _) in shown.items()
        for i in rows
        if (time := times[i]) is not None and (value := finite(series[name][i])) is not None
    ]
    if len(values) <= len(shown):
        return None
    labels = [label for label, _ in shown.values()]
    return framed(
        title,
        [device],
        {
            "data": {"values": values},
            "mark": {"type": "line", "strokeWidth": 1.5},
            "encoding": {
                "x": {"field": "s", "type": "quantitative", "axis": axis("seconds", grid=False, tickCount=4)},
                "y": {
                    "field": "percent",
                    "type": "quantitative",
                    "scale": {"domain": [0, 100]},
                    "axis": axis("%", values=[0, 50, 100]),
                },
                "color": {
                    "field": "what",
                    "type": "nominal",
                    "scale": {"domain": labels, "range": [colour(role) for _, role in shown.values()]},
                    "legend": {"columns": 2},
                },
            },
        },
        width=SMALL_WIDTH,
        height=80,
    )
