"""The neighbour matrix: how much each kind of neighbour slows a measured tenant, technique by technique."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gputax.report import wording
from gputax.report.charts.theme import axis, colour, framed
from gputax.report.model import Spec
from gputax.report.shared_points import Experiment, neighbour_reason, technique_title
from gputax.report.sharing_answers import NOT_DISTINGUISHABLE, slowed
from gputax.results.documents.sharing import NeighbourRow

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
    told = wording.overhead(value, row.slowdown_percent.ci95, "%")
    short = told.split(" (")[0]
    unclear = not slowed(row.slowdown_percent)
    return {
        "technique": technique,
        "aggressor": row.aggressor,
        "step": "" if unclear else next(name for limit, name in STEPS if value <= limit),
        "unclear": unclear,
        "text": f"({short})" if unclear else short,
        "tip": f"{technique}, {row.aggressor}: {told}{f', {NOT_DISTINGUISHABLE} from none' if unclear else ''}",
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
