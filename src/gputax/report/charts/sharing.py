"""The charts of sharing experiments: a figure against the number of tenants, and the matrix of neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from gputax.report import wording
from gputax.report.charts.theme import axis, colour, framed, series_scales, series_shapes
from gputax.report.model import Spec
from gputax.report.sharing_answers import NOT_DISTINGUISHABLE, Experiment, neighbour_reason, slowed, technique_title
from gputax.results.documents.sharing import NeighbourRow, SharedFigure, SharedRow

# Points with the same number of tenants are drawn side by side: their intervals would overlap.
DODGE = 0.06
# Two repeats have intervals of several times the value: they leave the picture, and the table has them.
TALLEST_INTERVAL = 1.6
# Fairness is near 1 or worth seeing: an axis that shows the last per mille would make noise look unfair.
LOWEST_FAIRNESS = 0.9


@dataclass(frozen=True)
class Measure:
    """What one chart shows of a row."""

    title: str
    axis: str
    unit: str
    figure: Callable[[SharedRow], SharedFigure]
    fairness: bool = False
    """Between 0 and 1, best at 1, and undefined for a single tenant."""


MEAN = Measure("mean latency by tenants", "mean latency, ms", "ms", lambda row: row.mean_ms)
P99 = Measure("p99 latency by tenants", "p99 latency, ms", "ms", lambda row: row.p99_ms)
AGGREGATE = Measure(
    "throughput of all tenants together", "inferences per second", "inferences/s", lambda row: row.aggregate_per_s
)
JAIN = Measure("fairness among tenants", "fairness, Jain (1 is equal)", "", lambda row: row.jain, True)


def tenants_chart(experiment: Experiment, measure: Measure, known: Sequence[str]) -> Spec | None:
    """Return the chart; None where fewer than two points have a figure."""
    rows = _rows(experiment, measure)
    if len(rows) < 2:
        return None
    labels = list(dict.fromkeys(row["label"] for row in rows))
    colours, dashes = series_scales(labels, known)
    counts = sorted({row["tenants"] for row in rows})
    gap = min((b - a for a, b in pairwise(counts)), default=1)
    domain = _domain(rows, measure)
    for row in rows:
        # Cut in the data: a clip path of Vega's would need ids, which several drawings on one page may not share.
        row["low"], row["high"] = (_within(row[bound], domain) for bound in ("low", "high"))
        row["x"] = row["tenants"] + (labels.index(row["label"]) - (len(labels) - 1) / 2) * DODGE * gap
    # The pale bars are drawn first, and the legend would take after them.
    tone = {"field": "label", "type": "nominal", "scale": colours, "legend": {"symbolOpacity": 1, "symbolSize": 90}}
    x: Spec = {
        "field": "x",
        "type": "quantitative",
        "scale": {"domain": [counts[0] - 0.3 * gap, counts[-1] + 0.3 * gap], "nice": False, "zero": False},
        "axis": axis("tenants", values=counts, format="d", grid=False),
    }
    y: Spec = {
        "field": "value",
        "type": "quantitative",
        "scale": {"domain": domain, "nice": False, "zero": False},
        "axis": axis(measure.axis, tickCount=5),
    }
    layers: list[Spec] = [
        {
            "mark": {"type": "rule", "strokeWidth": 5, "opacity": 0.35},
            "transform": [{"filter": "isValid(datum.low) && isValid(datum.high)"}],
            "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": tone},
        },
        {
            "mark": {"type": "line", "strokeWidth": 2},
            "encoding": {
                "x": x,
                "y": y,
                "color": tone,
                "strokeDash": {"field": "label", "type": "nominal", "scale": dashes},
            },
        },
        {
            "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1, "aria": True},
            "encoding": {
                "x": x,
                "y": y,
                "color": tone,
                "shape": {"field": "label", "type": "nominal", "scale": series_shapes(labels, known)},
                "description": {"field": "tip"},
            },
        },
    ]
    title = f"{experiment.title}: {measure.title}"
    return framed(title, [experiment.device], {"data": {"values": rows}, "layer": layers}, height=220)


def _rows(experiment: Experiment, measure: Measure) -> list[dict[str, Any]]:
    rows = []
    for point, row in experiment.measured:
        figure = measure.figure(row)
        value = wording.finite(figure.value)
        if value is None or (measure.fairness and point.tenants == 1):
            continue
        low, high = (None, None) if figure.ci95 is None else (wording.finite(bound) for bound in figure.ci95)
        interval = wording.measured(value, figure.ci95, measure.unit)
        may = f", each may use {row.entitlement}" if row.entitlement else ""
        rows.append(
            {
                "label": point.label,
                "tenants": point.tenants,
                "value": value,
                "low": low,
                "high": high,
                "tip": f"{point.label}, {wording.counted(point.tenants, 'tenant')}: {interval}{may}",
            }
        )
    return rows


def _within(value: float | None, domain: Sequence[float]) -> float | None:
    return None if value is None else min(max(value, domain[0]), domain[1])


def _domain(rows: Sequence[dict[str, Any]], measure: Measure) -> list[float]:
    values = [row["value"] for row in rows]
    if measure.fairness:
        lows = [max(row["low"], 0.0) for row in rows if row["low"] is not None]
        return [min(LOWEST_FAIRNESS, *values, *(low for low in lows if low > min(values) - 0.2)), 1.01]
    highs = [row["high"] for row in rows if row["high"] is not None]
    top = max(values)
    return [0.0, 1.06 * min(max(top, *highs) if highs else top, TALLEST_INTERVAL * top) or 1.0]


ROW_HEIGHT = 44
AGGRESSORS = ("compute", "memory", "copies", "launches", "crash")
# Slowdown in percent up to which a step of the scale goes.
STEPS: tuple[tuple[float, str], ...] = (
    (5.0, "≤ 5 %"),
    (25.0, "≤ 25 %"),
    (100.0, "≤ 100 %"),
    (300.0, "≤ 300 %"),
    (float("inf"), "> 300 %"),
)
INVALID = "invalid"
DASHED: Spec = {"strokeDash": [3, 3], "strokeWidth": 1}
LEGEND: Spec = {"symbolType": "square", "symbolStrokeWidth": 0, "columns": 3, "rowPadding": 5}


def neighbours_chart(experiment: Experiment, victim: str) -> Spec | None:
    """Return the heat map of one measured tenant; None where no cell of it has a figure."""
    chosen = {(row.technique, row.aggressor): row for row in experiment.record.neighbours if row.victim == victim}
    cells = [_cell(row) for row in chosen.values()]
    if not any(cell["step"] or cell["unclear"] for cell in cells):
        return None
    techniques = list(dict.fromkeys(cell["technique"] for cell in cells))
    aggressors = [name for name in AGGRESSORS if any(cell["aggressor"] == name for cell in cells)]
    cells += _unmeasured(cells, techniques, aggressors)
    y: Spec = {
        "field": "technique",
        "type": "nominal",
        "scale": {"domain": techniques, "paddingInner": 0.06},
        "axis": axis(None),
    }
    x: Spec = {
        "field": "aggressor",
        "type": "nominal",
        "scale": {"domain": aggressors, "paddingInner": 0.04},
        "axis": axis("kind of neighbour", labelAngle=0, ticks=False, domain=False),
    }
    names = [name for _, name in STEPS]
    scale = {"domain": names, "range": [colour(f"heat {i + 1}") for i in range(len(names))]}
    layers: list[Spec] = [
        {
            "transform": [{"filter": "!datum.step && !datum.unclear"}],
            "mark": {"type": "rect", "color": colour("band"), "aria": True},
            "encoding": {"x": x, "y": y, "description": {"field": "tip"}},
        },
        {
            # As pale as the paper, so that no colour speaks for what may be chance.
            "transform": [{"filter": "datum.unclear"}],
            "mark": {"type": "rect", "color": colour("paper"), "stroke": colour("line"), **DASHED, "aria": True},
            "encoding": {"x": x, "y": y, "description": {"field": "tip"}},
        },
        {
            "transform": [{"filter": "datum.step"}],
            "mark": {"type": "rect", "aria": True},
            "encoding": {
                "x": x,
                "y": y,
                "description": {"field": "tip"},
                "color": {"field": "step", "type": "nominal", "scale": scale, "legend": LEGEND},
            },
        },
        {"mark": {"type": "text", "fontSize": 12}, "encoding": {"x": x, "y": y, "text": {"field": "text"}}},
    ]
    title = f"{experiment.title}: slowdown of {victim} beside a neighbour"
    body = {"data": {"values": cells}, "layer": layers}
    return framed(title, [experiment.device], body, height={"step": ROW_HEIGHT})


def _cell(row: NeighbourRow) -> dict[str, Any]:
    technique = technique_title(row.technique)
    value = wording.finite(row.slowdown_percent.value) if row.valid else None
    if value is None:
        text = wording.DASH if row.valid else INVALID
        return _without_figure(technique, row.aggressor, text, neighbour_reason(row) or "no figure")
    interval = wording.overhead(value, row.slowdown_percent.ci95, "%")
    short = interval.split(" (")[0]
    unclear = not slowed(row.slowdown_percent)
    return {
        "technique": technique,
        "aggressor": row.aggressor,
        "step": "" if unclear else next(name for limit, name in STEPS if value <= limit),
        "unclear": unclear,
        "text": f"({short})" if unclear else short,
        "tip": f"{technique}, {row.aggressor}: {interval}{f', {NOT_DISTINGUISHABLE} from none' if unclear else ''}",
    }


def _without_figure(technique: str, aggressor: str, text: str, reason: str) -> dict[str, Any]:
    tip = f"{technique}, {aggressor}: {reason}"
    return {"technique": technique, "aggressor": aggressor, "step": "", "unclear": False, "text": text, "tip": tip}


def _unmeasured(
    cells: Sequence[dict[str, Any]], techniques: Sequence[str], aggressors: Sequence[str]
) -> list[dict[str, Any]]:
    known = {(cell["technique"], cell["aggressor"]) for cell in cells}
    return [
        _without_figure(technique, aggressor, wording.DASH, "not measured")
        for technique in techniques
        for aggressor in aggressors
        if (technique, aggressor) not in known
    ]
