"""What the host and the device did while a cell was measured."""

from __future__ import annotations

import numpy as np

from gputax.report.charts.theme import SMALL_WIDTH, axis, colour, framed
from gputax.report.model import Spec
from gputax.report.sources import Telemetry
from gputax.report.wording import finite

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
