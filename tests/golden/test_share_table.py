"""The whole output of a sharing experiment, from a hand-made record."""

from __future__ import annotations

import io
import os
from pathlib import Path

from gputax.measure.share.documents import shared_rows
from gputax.report.exporters.console_text import write_console
from gputax.report.sources import SharingSource, Sources
from gputax.report.story import build_report
from gputax.results.documents.base import Failure, WarningRecord
from gputax.results.documents.sharing import CrossCheck, SharingRecord
from tests.builders.shared_cells import document

GOLDEN = Path(__file__).parent / "share_table.txt"


def record() -> SharingRecord:
    busy = [WarningRecord(code="busy", text=f"Others used {share} %.", value=share) for share in (12, 55)]
    check = CrossCheck(query="q", prometheus_ms=301.0, ours_ms=300.0, difference_percent=0.33)
    cells = [
        document("cpu-shared", 1, 1, 100.0, warnings=(busy[0],)),
        document("cpu-shared", 3, 1, 290.0, jain=0.99, p90_ms=310.0, cross_check=check),
        document("cpu-shared", 1, 2, 104.0, warnings=(busy[1],)),
        document("cpu-shared", 3, 2, 310.0, jain=0.98, p90_ms=330.0),
        document("cpu-quota", 3, 1, 1500.0),
        document("cpu-quota", 1, 1, 1490.0, valid=False),
    ]
    return SharingRecord(
        gputax_version="0", timestamp="2026-01-01", complete=False, plan_id="p", plan={}, place="bare",
        workload="yolos-small", device="cpu", device_label="CPU (Test CPU), not a GPU",
        claim="CPU number, not a GPU's", cells=tuple(cells), rows=shared_rows(cells),
        failures=(Failure(cell="cpu-quota-t3-r2", kind="WorkerError", what="it broke [here]", where="tenant 2 of 3"),),
        warnings=(WarningRecord(code="technique-left-out", text="proxy was skipped"),),
    )  # fmt: skip


def test_the_whole_table() -> None:
    stream = io.StringIO()
    write_console(
        build_report(Sources(sharing=(SharingSource("results/x/sharing.json", record()),))), stream, "screen", 80
    )
    text = "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"
    if os.environ.get("GPUTAX_WRITE_GOLDEN"):  # by hand, and then read what has changed
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def test_pods_are_called_pods() -> None:
    stream = io.StringIO()
    pods = record().model_copy(update={"place": "k8s"})
    write_console(build_report(Sources(sharing=(SharingSource("results/x/sharing.json", pods),))), stream, "screen", 80)
    assert "  Pods  mean ms" in stream.getvalue()
