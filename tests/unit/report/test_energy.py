"""Joules per inference in the tables: where a device counts them, and no column where nobody does."""

from __future__ import annotations

from gputax.report.model import Table
from gputax.report.sources import Sources
from gputax.report.story import build_report
from tests.builders.documents import benchmark, run_source, sources
from tests.builders.shared_documents import figure, gpu_record, shared


def table(read: Sources, name: str) -> Table:
    (found,) = [table for table in build_report(read).tables if table.name == name]
    return found


def column(found: Table, key: str = "joules") -> list[str]:
    at = [each.key for each in found.columns].index(key)
    return [row[at].text for row in found.rows]


def test_a_run_shows_joules_per_inference_and_who_does_not_count() -> None:
    counted, silent = benchmark(joules_per_sample=0.123456), benchmark("resnet50-offline-b1-bare", batch_size=1)
    for found in (cells := table(sources(runs=(run_source(counted, silent),)), "cells"), *cells.console):
        assert sorted(column(found)) == ["0.123", "not counted"]
        assert "Not counted: not counted by this device." in found.notes


def test_nobody_counts_means_no_column() -> None:
    found = table(sources(runs=(run_source(benchmark()),)), "cells")
    assert not [each for each in (found, *found.console) if "joules" in [column.key for column in each.columns]]
    shared_tables = build_report(shared(gpu_record())).tables
    assert not [each for each in shared_tables if "joules" in [column.key for column in each.columns]]


def test_tenants_show_the_devices_total_over_all_of_them() -> None:
    record = gpu_record()
    rows = tuple(row.model_copy(update={"joules_per_inference": figure(2.0)}) for row in record.rows)
    read = shared(record.model_copy(update={"rows": rows}))
    throughput = table(read, "sharing_throughput")
    assert "2 (1.96 to 2.04)" in column(throughput)
    console = table(read, "sharing_answer").console[0]
    assert set(column(console)) <= {"2", "not counted"}
    assert any("which tenant used how much is not counted" in note for note in console.notes)
