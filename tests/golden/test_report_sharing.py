"""Whole reports of made-up sharing experiments, as text: Markdown, CSV and the terminal's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gputax.report.exporters.markdown_text import markdown_text
from gputax.report.model import Report
from gputax.report.output import report_text
from gputax.report.sources import Sources
from gputax.report.story import build_report
from tests.builders.documents import comparison, metric, run_source, sources
from tests.builders.shared_documents import (
    gpu_record,
    invalid_cell,
    neighbours_record,
    shared,
    shared_cell,
    shared_row,
    sharing_record,
)

HERE = Path(__file__).parent


def short_record() -> Sources:
    """Two stand-ins with 1 and 3 tenants, one of them invalid at 3."""
    rows = (shared_row("cpu-shared", 1), shared_row("cpu-shared", 3), shared_row("cpu-quota", 1))
    cells = (
        shared_cell("cpu-shared", 1), shared_cell("cpu-shared", 3), shared_cell("cpu-quota", 1),
        invalid_cell("cpu-quota", 3, reason="the quota was not set"),
    )  # fmt: skip
    return shared(sharing_record(tenants=(1, 3), rows=rows, cells=cells))


def mixed_report() -> Report:
    """What the tour shows: a run, a duet, tenants and neighbours, on two devices."""
    made = sources(comparison(metric()), runs=(run_source(),))
    shared_ones = shared(gpu_record(), neighbours_record("proxy", "cpu-quota")).sharing
    return build_report(Sources(made.runs, made.comparisons, shared_ones))


def written(name: str) -> str:
    match name:
        case "report_sharing.md":
            return markdown_text(build_report(short_record()), {"sharing-latency-1": "report-sharing-latency-1.svg"})
        case "report_sharing.csv":
            return report_text(build_report(short_record()), "csv")
    text = report_text(mixed_report(), "table")
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


@pytest.mark.parametrize("name", ["report_sharing.md", "report_sharing.csv", "report_sharing.txt"])
def test_the_whole_report(name: str) -> None:
    text = written(name)
    if os.environ.get("GPUTAX_WRITE_GOLDEN"):  # by hand, and then read what has changed
        (HERE / name).write_text(text)
    assert text == (HERE / name).read_text()
