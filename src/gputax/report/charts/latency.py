"""Latency by percentile: the whole distribution on an axis where p50, p90, p99 and p99.9 have equal room."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gputax.report.charts.theme import axis, framed, series_scales
from gputax.report.distributions import Curve
from gputax.report.model import Spec

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
