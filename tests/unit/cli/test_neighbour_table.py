"""The table tells device, stand-ins, intervals, refusals and broken walls, and no number without evidence."""

from __future__ import annotations

from typing import Any

from gputax.cli.neighbour_table import neighbour_lines
from gputax.results.documents.run import Failure, WarningRecord
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


def test_everything_that_must_be_said() -> None:
    tail = SharedFigure(value=80.0, ci95=(60.0, 100.0))
    lines = neighbour_lines(
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
        )
    )
    text = "\n".join(lines)
    assert lines[0] == "resnet50, single-stream, beside a neighbour, on CPU (Xeon), not a GPU"
    assert "cpu-shared (stand-in)" in text
    assert "+50 %" in text
    assert "+42 to +∞" in text
    assert "+80 % [+60 to +100]" in text
    assert "+1,234 %" in text
    invalid = next(line for line in lines if "copies" in line)
    assert "INVALID" in invalid
    assert "37.5" not in invalid
    assert "INVALID: mps, copies: no MPS server" in text
    assert "Warning: the hypervisor withheld 3 % (cpu-shared, memory; the worst of 2)" in text
    assert "withheld 2 %" not in text
    assert "  pass       proxy: memory quota holds" in lines
    assert "  FAIL       proxy: no foreign memory readable" in lines
    assert "  not tried  proxy: a crash stays with its tenant" in lines
    assert "FAILED: mps-crash: it broke" in lines
    assert max(map(len, lines)) <= 120


def test_a_hostile_record_cannot_paint_the_terminal() -> None:
    text = "\n".join(
        neighbour_lines(record(device_label="\x1b[31mGPU", neighbours=(row("cpu-shared", "compute", 1.0),)))
    )
    assert "\x1b" not in text
