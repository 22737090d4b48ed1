"""A console says device, stand-ins, intervals, refusals and broken walls, and no number without evidence."""

from __future__ import annotations

import io
from typing import Any

from gputax.report.exporters.console_text import write_console
from gputax.report.sources import SharingSource, Sources
from gputax.report.story import build_report
from gputax.results.documents.base import Failure, WarningRecord
from gputax.results.documents.sharing import IsolationRow, NeighbourRow, SharedFigure, SharingRecord


def row(technique: str, aggressor: Any, value: float | None, **changes: Any) -> NeighbourRow:
    values: dict[str, Any] = {
        "technique": technique,
        "victim": "resnet50, single-stream",
        "aggressor": aggressor,
        "pairs": 10,
        "alone_ms": 25.0,
        "beside_ms": 37.5,
        "slowdown_percent": SharedFigure(value=value, ci95=(42.0, None) if value is not None else None),
    }
    return NeighbourRow(**{**values, **changes})


def record(**changes: Any) -> SharingRecord:
    values: dict[str, Any] = {
        "gputax_version": "1",
        "timestamp": "now",
        "complete": True,
        "plan_id": "1",
        "plan": {},
        "place": "bare",
        "workload": "resnet50",
        "device": "cpu",
        "device_label": "CPU (Xeon), not a GPU",
    }
    return SharingRecord(**{**values, **changes})


def steal(percent: float) -> WarningRecord:
    return WarningRecord(code="steal", text=f"the hypervisor withheld {percent:g} %", value=percent)


def shown(document: SharingRecord) -> str:
    stream = io.StringIO()
    write_console(build_report(Sources(sharing=(SharingSource("x/sharing.json", document),))), stream, "screen", 120)
    return stream.getvalue()


def test_everything_that_must_be_said() -> None:
    tail = SharedFigure(value=80.0, ci95=(60.0, 100.0))
    text = shown(
        record(
            neighbours=(
                row("cpu-shared", "compute", 50.0, p99_slowdown_percent=tail, warnings=(steal(2.0),)),
                row("cpu-shared", "memory", 1234.0, warnings=(steal(3.0),)),
                row("mps", "copies", None, valid=False, warnings=(WarningRecord(code="x", text="no MPS server"),)),
            ),
            isolation=(
                IsolationRow(technique="proxy", check="memory quota holds", passed=True, text="held"),
                IsolationRow(technique="proxy", check="no foreign memory readable", passed=False, text="read " * 40),
                IsolationRow(technique="proxy", check="a crash stays with its tenant", passed=None, text="not asked"),
            ),
            failures=(Failure(cell="mps-crash", kind="CellError", what="it broke"),),
            claim="CPU number, not a GPU's",
        )
    )
    lines = text.splitlines()
    assert "resnet50 in bare: single-stream beside a neighbour on CPU (Xeon), not a GPU" in lines
    assert "cpu-shared (stand-in)" in text
    assert "+50.0 % (from +42.0)" in text
    assert "+80.0 % (+60.0 to +100.0)" in text
    assert "+1,234 % (from +42)" in text
    invalid = next(line for line in lines if "copies" in line)
    assert "invalid" in invalid
    assert "37.5" not in invalid
    assert "MPS, copies: no MPS server" in lines
    assert "withheld 3 % (2 places, worst: cpu-shared (stand-in) beside memory)" in text
    assert any("memory quota holds" in line and "✓ pass" in line for line in lines)
    assert any("no foreign memory readable" in line and "✗ fail" in line for line in lines)
    assert any("a crash stays with" in line and "– not tried" in line for line in lines)
    assert "it broke" in text
    assert "Claim: CPU number, not a GPU's." in lines
    assert max(map(len, lines)) <= 120


def test_a_hostile_record_cannot_paint_the_terminal() -> None:
    assert "\x1b" not in shown(record(device_label="\x1b[31mGPU", neighbours=(row("cpu-shared", "compute", 1.0),)))
