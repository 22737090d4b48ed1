"""The first chart: a row per layer, cell or technique, each with its dot, its interval, its mark and its verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gputax.report.charts.theme import axis, colour, framed, tone_colour
from gputax.report.model import OverviewRow, Spec

# Drawn larger than the other charts on a desk, and still of readable size on a phone.
WIDTH = 440
ROW_HEIGHT = 62
# Where the lines of text and the dot lie, from the top of a row; a third line makes all rows taller.
ABOVE_PX, DOT_PX, BELOW_PX, OWN_PX = 12, 31, 50, 66
OWN_HEIGHT = 16
TICK_PX = 20
# An interval may be so much wider than all the values; the number beside it has the rest.
WIDEST_INTERVAL = 1.0
# Above this ratio a linear axis would put all but the largest on top of each other.
LOG_ABOVE = 12.0
LONGEST_NAME = 34
LONGEST_LINE = 80


def overview_chart(title: str, below: Sequence[str], axis_title: str, rows: Sequence[OverviewRow]) -> Spec:
    """Return the chart; rows with a mark begin at zero, and others where their values do."""
    from_zero = any(row.mark is not None for row in rows)
    domain, logarithmic = _domain(rows, from_zero)
    height = ROW_HEIGHT + (OWN_HEIGHT if any(row.own for row in rows) else 0)
    values = [_drawn(row, i * height, domain) for i, row in enumerate(rows)]
    y: Spec = {
        "field": "y",
        "type": "quantitative",
        "scale": {"domain": [height * len(rows), 0], "nice": False, "zero": False},
        "axis": None,
    }
    x: Spec = {
        "field": "value",
        "type": "quantitative",
        "scale": {"type": "log" if logarithmic else "linear", "domain": domain, "nice": False, "zero": False},
        "axis": axis(axis_title, tickCount=6, grid=False, **_ticks(domain, logarithmic)),
    }
    tone: Spec = {"field": "colour", "type": "nominal", "scale": None, "legend": None}
    layers: list[Spec] = [
        *([_tick(y, {**x, "field": "zero"}, colour("line"))] if from_zero else []),
        {
            "mark": {"type": "rule", "color": colour("line"), "opacity": 0.6},
            "encoding": {"y": y, "x": {"value": 0}, "x2": {"value": "width"}},
        },
        {
            "transform": [{"filter": "isValid(datum.low) && isValid(datum.high)"}],
            "mark": {"type": "rule", "strokeWidth": 7, "strokeCap": "round", "opacity": 0.35},
            "encoding": {"y": y, "x": {**x, "field": "low"}, "x2": {"field": "high"}, "color": tone},
        },
        {
            "transform": [{"filter": "isValid(datum.mark)"}],
            **_tick(y, {**x, "field": "mark"}, colour("ink"), thickness=2.5),
        },
        {
            "mark": {"type": "point", "filled": True, "size": 110, "opacity": 1, "aria": True},
            "encoding": {"y": y, "x": x, "color": tone, "description": {"field": "tip"}},
        },
        _text(y, "above", "name", right=False, fontWeight=600, fontSize=13),
        _text(y, "above", "text", right=True, fontWeight=600, fontSize=13, tone=tone),
        _text(y, "below", "beside", right=False, fontSize=11, color=colour("muted")),
        _text(y, "last", "own", right=False, fontSize=11, color=colour("muted")),
        _text(y, "below", "worst", right=True, fontSize=11, tone={**tone, "field": "worst_colour"}),
    ]
    body = {"data": {"values": values}, "layer": layers}
    return framed(title, below, body, width=WIDTH, height=height * len(rows))


def _tick(y: Spec, x: Spec, tone: str, thickness: float = 1.0) -> Spec:
    mark = {"type": "tick", "orient": "vertical", "thickness": thickness, "size": TICK_PX, "color": tone}
    return {"mark": mark, "encoding": {"y": y, "x": x}}


def _text(y: Spec, place: str, field: str, *, right: bool, tone: Spec | None = None, **look: Any) -> Spec:
    return {
        "mark": {"type": "text", "align": "right" if right else "left", "baseline": "middle", **look},
        "encoding": {
            "y": {**y, "field": place},
            "x": {"value": "width" if right else 0},
            "text": {"field": field},
            **({} if tone is None else {"color": tone}),
        },
    }


def _ticks(domain: Sequence[float], logarithmic: bool) -> Spec:
    """Return the ticks of a logarithmic axis: Vega's own would print over each other."""
    if not logarithmic:
        return {}
    powers = range(math.floor(math.log10(domain[0])), math.ceil(math.log10(domain[1])) + 1)
    ticks = [step * 10.0**power for power in powers for step in (1, 3)]
    return {"values": [tick for tick in ticks if domain[0] <= tick <= domain[1]], "format": "~g"}


def _drawn(row: OverviewRow, top: int, domain: Sequence[float]) -> dict[str, Any]:
    low, high = row.low, row.high
    # Cut in the data: a clip path of Vega's would need ids, which several drawings on one page may not share.
    low, high = (None, None) if low is None or high is None else (max(low, domain[0]), min(high, domain[1]))
    return {
        "y": top + DOT_PX,
        "above": top + ABOVE_PX,
        "below": top + BELOW_PX,
        "last": top + OWN_PX,
        "name": shortened(row.name, LONGEST_NAME),
        "value": row.value,
        "low": low,
        "high": high,
        "zero": 0.0,
        "mark": row.mark,
        "text": row.text,
        "colour": tone_colour(row.tone) if row.tone else colour("series 2"),
        "beside": row.beside,
        "worst": row.worst,
        "worst_colour": tone_colour(row.worst_tone) if row.worst_tone == "fail" else colour("muted"),
        "own": _both_ends(row.own, LONGEST_LINE),
        "tip": row.tip,
    }


def shortened(text: str, longest: int) -> str:
    """Return the text, or its beginning where its row has no room for all of it."""
    return text if len(text) <= longest else f"{text[: longest - 1].rstrip()}…"


def _both_ends(text: str, longest: int) -> str:
    """Return the text without its middle: a device's label ends with `not a GPU`, and that must stay."""
    return text if len(text) <= longest else f"{text[: longest // 2]}…{text[1 - longest // 2 :]}"


def _domain(rows: Sequence[OverviewRow], from_zero: bool) -> tuple[list[float], bool]:
    values = [row.value for row in rows] + [row.mark for row in rows if row.mark is not None]
    values += [0.0] if from_zero else []
    low, high = min(values), max(values)
    if not from_zero and low > 0.0 and high / low > LOG_ABOVE:
        return [low / 1.5, high * 1.5], True
    span = (high - low) or abs(high) or 1.0
    bounds = [bound for row in rows for bound in (row.low, row.high) if bound is not None]
    low = max(min([low, *bounds]), low - WIDEST_INTERVAL * span)
    high = min(max([high, *bounds]), high + WIDEST_INTERVAL * span)
    return [low - 0.04 * span, high + 0.04 * span], False
