"""What was measured on a disturbed machine is labelled wherever its numbers are shown, and ranks nothing."""

from __future__ import annotations

import io
from typing import Any, Literal

from gputax.measure.share.documents import shared_rows
from gputax.report.exporters.console_text import write_console
from gputax.report.output import report_text
from gputax.report.sharing_answers import experiments_of, sharing_answers
from gputax.report.sources import ComparisonSource, SharingSource, Sources
from gputax.report.story import build_report
from gputax.results.documents.base import WarningRecord
from gputax.results.documents.sharing import NeighbourRow, SharedFigure, SharingRecord
from tests.builders.documents import benchmark, comparison, metric, run_source
from tests.builders.shared_cells import document

REASON = "other processes used 104 % of one core on this worker's CPUs (limit 25 %)"
BUSY = WarningRecord(code="busy-neighbours", text=f"{REASON}: they take cache.", value=104.0)


def screen(sources: Sources) -> str:
    stream = io.StringIO()
    write_console(build_report(sources), stream, "screen", 80)
    return stream.getvalue()


def test_a_disturbed_cell_says_so_beside_valid_and_why_once() -> None:
    cells = [benchmark(f"cell-{number}", disturbed=(REASON,), warnings=(BUSY,)) for number in (1, 2)]
    sources = Sources(runs=(run_source(*cells, benchmark("calm")),))
    text = screen(sources)
    assert "3 cells measured in bare; all valid, 2 DISTURBED." in text
    assert text.count("VALID DISTURBED") == 2
    assert " ".join(text.split()).count("104 % of one core") == 1
    assert max(map(len, text.splitlines())) <= 80
    page = report_text(build_report(sources), "html")
    assert "DISTURBED" in page
    assert "2 disturbed" in page


def test_a_disturbed_duet_says_so_in_its_title_and_why_once() -> None:
    text = f"bare: {REASON}"
    undecided = metric(verdict="inconclusive", reason=f"{text}; otherwise this would be a pass: upper bound 3.9 %")
    made = comparison(undecided, kind="duet", disturbed=(text,))
    shown = " ".join(screen(Sources(comparisons=(ComparisonSource("d", made),))).split())
    assert "· DISTURBED" in shown
    assert shown.count("104 % of one core") == 1


def sharing(accepted: bool = False, **changes: Any) -> SharingRecord:
    cells = [
        *(document("cpu-shared", 3, repeat, 290.0 + repeat) for repeat in (1, 2, 3)),
        *(document("cpu-quota", 3, repeat, 900.0 + repeat) for repeat in (1, 2)),
        document("cpu-quota", 3, 3, 903.0, disturbed=(REASON,)),
    ]
    values: dict[str, Any] = {"cells": tuple(cells), "rows": shared_rows(cells), "accepts_disturbed": accepted}
    return SharingRecord(
        gputax_version="0", timestamp="2026-01-01", complete=True, plan_id="p", plan={}, place="bare",
        workload="yolos-small", device="cpu", device_label="CPU (Test CPU), not a GPU", **{**values, **changes},
    )  # fmt: skip


def answer(record: SharingRecord) -> str:
    return sharing_answers(experiments_of([SharingSource("s", record)]), name_device=False)[0].text


def test_techniques_are_not_ranked_by_a_disturbed_repeat_unless_it_was_accepted() -> None:
    assert [row.disturbed for row in sharing().rows] == [0, 1]
    assert "undecided, the machine was disturbed" in answer(sharing())
    assert "has the lowest mean latency" not in answer(sharing())
    assert "has the lowest mean latency" in answer(sharing(accepted=True))
    for accepted in (False, True):
        text = screen(Sources(sharing=(SharingSource("s", sharing(accepted)),)))
        assert "DISTURBED" in text, "the label remains"


def test_a_neighbour_that_was_measured_on_a_disturbed_machine_slows_nobody() -> None:
    cases: tuple[tuple[Literal["compute", "memory"], tuple[str, ...]], ...] = (("compute", (REASON,)), ("memory", ()))
    rows = tuple(
        NeighbourRow(
            technique="cpu-shared", victim="resnet50, single-stream", aggressor=kind, pairs=8, alone_ms=1.0,
            beside_ms=2.0, slowdown_percent=SharedFigure(value=100.0, ci95=(90.0, 110.0)), disturbed=disturbed,
        )
        for kind, disturbed in cases
    )  # fmt: skip
    text = answer(sharing(cells=(), rows=(), neighbours=rows))
    assert "slowed most by memory" in text
    assert "1 undecided, the machine was disturbed" in text
