"""Colours, sizes and the frame that every chart shares.

A spec holds the light colour itself, so that it is right in any viewer; the page and the standalone files turn each
into its dark partner with a rule on the attribute, e.g. `[fill="#1c2733"]`. No two roles may share a colour.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from gputax.report.model import Spec, Tone

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
# Of the whole picture. Two fit side by side on a desktop, and a phone shrinks 12 pixels of text to 10, not to 7.
WIDTH = 440
SMALL_WIDTH = 310
FONT = "Helvetica Neue, Arial, Liberation Sans, sans-serif"

# role: (light, dark)
PALETTE: dict[str, tuple[str, str]] = {
    "paper": ("#fefefe", "#161a1f"),
    "ink": ("#1c2733", "#e3e8ee"),
    "muted": ("#5b6776", "#9da8b6"),
    "line": ("#b9c2cc", "#4a5561"),
    "grid": ("#e6eaee", "#29313a"),
    "band": ("#eef2f6", "#212932"),
    "pass": ("#1b7a4a", "#55c48a"),
    "fail": ("#b5362c", "#f28b80"),
    "inconclusive": ("#946200", "#e2b251"),
    "not comparable": ("#706a7b", "#aaa2b8"),
    "derived": ("#3f6f9e", "#86b6e4"),
    "series 1": ("#4a5766", "#c3ccd6"),
    "series 2": ("#2b6cb0", "#7db4ee"),
    "series 3": ("#c2631a", "#f2a65f"),
    "series 4": ("#127f74", "#50c6b8"),
    "series 5": ("#8a4fa8", "#c79de2"),
    "series 6": ("#b03a6a", "#ee8fb4"),
    "series 7": ("#6f7d12", "#bcc95c"),
    "series 8": ("#1a8fb5", "#74cbe8"),
    # One hue that moves away from the paper step by step, also in grey; ink keeps 4.5 : 1 on each step.
    "heat 1": ("#fbeedd", "#2a2926"),
    "heat 2": ("#f8d9b0", "#45341f"),
    "heat 3": ("#f2bd7c", "#5e401a"),
    "heat 4": ("#e79f52", "#774b13"),
    "heat 5": ("#d9822f", "#8f560c"),
}
# Colour is never the only sign: print and colour-blind readers have the dashes.
DASHES: tuple[list[int], ...] = ([1, 0], [1, 0], [6, 2], [2, 2], [8, 2, 2, 2], [4, 4], [1, 3], [10, 3])
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")


def colour(role: str) -> str:
    """Return the light colour of a role."""
    return PALETTE[role][0]


def tone_colour(tone: Tone | None) -> str:
    """Return the colour of a verdict; derived steps, which have none, have their own."""
    return colour(tone) if tone in PALETTE and tone is not None else colour("derived")


def series_scales(labels: Sequence[str], known: Sequence[str]) -> tuple[Spec, Spec]:
    """Return the colour and dash scales of these labels, each with the place it has among all of the report."""
    places = [known.index(label) % len(DASHES) for label in labels]
    return (
        {"domain": list(labels), "range": [colour(f"series {place + 1}") for place in places]},
        {"domain": list(labels), "range": [DASHES[place] for place in places]},
    )


def series_shapes(labels: Sequence[str], known: Sequence[str]) -> Spec:
    """Return the scale of the points' shapes, for charts with few enough points to be distinguished by them."""
    places = [known.index(label) % len(SHAPES) for label in labels]
    return {"domain": list(labels), "range": [SHAPES[place] for place in places]}


def framed(title: str, devices: Iterable[str], body: Spec, *, width: int = WIDTH, height: int | Spec = 180) -> Spec:
    """Return a whole spec: the title with the label of the device below it, and our look."""
    return {
        "$schema": SCHEMA,
        "title": {
            "text": textwrap.wrap(title, width // 8) or [""],
            "subtitle": [line for device in dict.fromkeys(devices) for line in textwrap.wrap(device, width // 6)],
        },
        "autosize": {"type": "fit-x", "contains": "padding"},
        "width": width,
        "height": height,
        "background": None,
        # The title is aligned with the page's text.
        "padding": {"left": 0, "right": 6, "top": 2, "bottom": 2},
        "config": _CONFIG,
        **body,
    }


def axis(title: str | None, **options: Any) -> Spec:
    """Return an axis; the title carries the unit."""
    return {"title": title, **options}


def rule(place: str, value: float, **look: Any) -> Spec:
    """Return one line across the chart; with data of its own, or Vega would draw it once for every row."""
    return {"data": {"values": [{}]}, "mark": {"type": "rule", **look}, "encoding": {place: {"datum": value}}}


def padded(low: float, high: float, share: float = 0.06, right_share: float | None = None) -> list[float]:
    """Return a domain with air around the data; one value alone has air too."""
    span = (high - low) or abs(high) or 1.0
    return [low - share * span, high + (share if right_share is None else right_share) * span]


_CONFIG: Spec = {
    "font": FONT,
    # The page is read by people and screen readers; only marks that carry a sentence of their own are labelled.
    "aria": False,
    "view": {"stroke": None},
    "title": {
        "anchor": "start",
        "frame": "bounds",
        "color": colour("ink"),
        "fontSize": 14,
        "fontWeight": 600,
        "offset": 12,
        "subtitleColor": colour("muted"),
        "subtitleFontSize": 11.5,
        "subtitlePadding": 4,
    },
    "axis": {
        "domainColor": colour("line"),
        "tickColor": colour("line"),
        "gridColor": colour("grid"),
        "labelColor": colour("muted"),
        "titleColor": colour("muted"),
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "labelPadding": 5,
        "tickSize": 4,
        "labelLimit": 160,
    },
    "axisY": {"domain": False, "ticks": False},
    "legend": {
        "orient": "bottom",
        "title": None,
        "labelColor": colour("ink"),
        "labelFontSize": 12,
        "labelLimit": 190,
        "symbolStrokeWidth": 2,
        "symbolSize": 160,
        "columns": 3,
        "offset": 10,
    },
    "text": {"fontSize": 12, "color": colour("ink")},
}
