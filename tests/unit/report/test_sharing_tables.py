from __future__ import annotations

import math
from typing import Any

import pytest

from gputax.errors import ResultsError
from gputax.report.model import Report, Table
from gputax.report.sharing import MOST_ROWS
from gputax.report.story import build_report
from gputax.results.documents.base import Failure, WarningRecord
from gputax.results.documents.sharing import SharingRecord
from tests.builders.documents import CPU
from tests.builders.shared_documents import (
    GPU,
    TENANTS,
    cross_check,
    figure,
    gpu_record,
    invalid_cell,
    neighbour,
    neighbours_record,
    shared,
    shared_cell,
    shared_row,
    sharing_record,
    tenant,
)


def report_of(*records: SharingRecord) -> Report:
    return build_report(shared(*records))


def table_of(report: Report, name: str) -> Table:
    (found,) = [table for table in report.tables if table.name == name]
    return found


def texts(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.shown_rows]


def test_the_users_table_has_their_shape_rows_and_seconds() -> None:
    table = table_of(report_of(gpu_record()), "pods")
    assert [column.title for column in table.columns] == ["technique", "7 Pods", "5 Pods", "3 Pods", "1 Pod"]
    assert texts(table) == [
        ["Time-slicing", "0.685", "0.486", "0.287", "0.088"],
        ["MPS", "invalid", "0.2424", "0.1652", "0.088"],
        ["MIG", "0.3444", "0.3436", "0.3428", "0.342"],
    ]
    assert table.rows[0][1].value == pytest.approx(0.685)
    assert (table.rows[0][1].low, table.rows[0][1].high) == pytest.approx((0.6713, 0.6987))
    assert table.rows[1][1].value is None
    assert table.notes == (
        "Time-slicing: each may use up to all of it.",
        "MPS: each may use 14 % of the SMs, 11.4 GB.",
        "MIG: each may use 1g.10gb.",
    )


def test_on_one_machine_they_are_tenants_and_entitlements_may_change_with_their_number() -> None:
    rows = tuple(shared_row("cpu-shared", count, entitlement=f"1/{count} of it") for count in (1, 2))
    table = table_of(report_of(sharing_record(("cpu-shared",), (1, 2), rows=rows)), "pods")
    assert [column.heading for column in table.columns] == ["technique", "2 tenants", "1 tenant"]
    assert table.notes == ("cpu-shared (stand-in): each may use 1/1 of it with 1; 1/2 of it with 2.",)


@pytest.mark.parametrize(
    ("mean_ms", "text", "heading", "unit"),
    [
        (0.09905, "99.05", "7 tenants (µs)", "microseconds"),
        (0.0004, "0.4", "7 tenants (µs)", "microseconds"),
        (0.1259, "0.1259", "7 tenants (ms)", "milliseconds"),
        (1.0, "0.001", "7 tenants", "seconds"),
        (344.4, "0.3444", "7 tenants", "seconds"),
    ],
)
def test_times_are_in_the_unit_in_which_they_can_be_read(mean_ms: float, text: str, heading: str, unit: str) -> None:
    rows = (shared_row("proxy", 7, mean_ms=figure(mean_ms)),)
    table = table_of(report_of(sharing_record(("proxy",), (), rows=rows)), "pods")
    assert f"mean inference time in {unit} by number of tenants" in table.title
    assert table.columns[1].heading == heading
    assert texts(table) == [["GPU proxy", text]]


def test_the_smallest_time_decides_the_unit_of_all() -> None:
    rows = (shared_row("proxy", 1, mean_ms=figure(0.2)), shared_row("proxy", 7, mean_ms=figure(1500.0)))
    table = table_of(report_of(sharing_record(("proxy",), (), rows=rows)), "pods")
    assert texts(table) == [["GPU proxy", "1,500", "0.2"]]


def test_one_figure_alone_has_no_column_that_ranks_it() -> None:
    alone = table_of(report_of(sharing_record(("cpu-shared",))), "sharing_answer")
    assert "against the lowest" not in [column.title for column in alone.shown_columns]
    assert not [cell for row in alone.rows for cell in row if cell.text == "lowest"]
    two = table_of(report_of(sharing_record()), "sharing_answer")
    assert "against the lowest" in [column.title for column in two.shown_columns]


def test_entitlement_stands_beside_every_figure() -> None:
    report = report_of(sharing_record())
    for name in ("sharing_answer", "sharing", "sharing_percentiles", "sharing_throughput", "sharing_fairness"):
        table = table_of(report, name)
        place = [column.key for column in table.shown_columns].index("entitlement")
        assert {row[place].text for row in table.shown_rows} == {"up to all cores", "2/7 of a core"}, name


def test_the_answer_table_says_who_cannot_be_told_from_the_lowest() -> None:
    rows = tuple(shared_row(name, 7, mean_ms=figure(mean, 5.0)) for name, mean in (("mps", 320.0), ("mig", 330.0)))
    table = table_of(report_of(sharing_record(("mig", "mps"), (), rows=rows)), "sharing_answer")
    assert [(row[0], row[3]) for row in texts(table)] == [("MPS", "lowest"), ("MIG", "not distinguishable")]
    assert any("overlaps" in note for note in table.notes)


def test_refused_percentiles_are_dashes_with_a_note_and_no_chart() -> None:
    few = {"p90_ms": figure(None), "p99_ms": figure(None)}
    rows = tuple(shared_row("cpu-shared", count, **few) for count in TENANTS)
    report = report_of(sharing_record(("cpu-shared",), rows=rows))
    table = table_of(report, "sharing_percentiles")
    assert texts(table)[0][3:] == ["58.8 (57.62 to 59.98)", "–", "–"]
    assert any("too few samples" in note for note in table.notes)
    assert not [chart for chart in report.charts if chart.name.startswith("sharing-p99")]


def test_without_any_percentile_there_is_no_table_of_them() -> None:
    none = {name: figure(None) for name in ("p50_ms", "p90_ms", "p99_ms")}
    rows = tuple(shared_row("cpu-shared", count, **none) for count in TENANTS)
    report = report_of(sharing_record(("cpu-shared",), rows=rows))
    assert "sharing_percentiles" not in {table.name for table in report.tables}


def test_an_invalid_cell_says_why_and_shows_no_number_anywhere() -> None:
    report = report_of(gpu_record())
    assert texts(table_of(report, "failures")) == [
        [f"mps-t7-r{repeat}", "invalid", "no MPS client was seen"] for repeat in (1, 2, 3)
    ]
    (row,) = [row for row in table_of(report, "sharing").shown_rows if row[0].text == "MPS" and row[1].value == 7]
    assert (row[3].text, row[3].detail) == ("invalid", "no MPS client was seen")
    assert [cell.text for cell in row[4:]] == ["–", "–", "–"]
    cells = table_of(report, "shared_cells")
    (cell, *_) = [row for row in cells.shown_rows if row[0].text == "mps-t7-r1"]
    assert [entry.text for entry in cell[4:]] == ["–", "–", "3.5", "–", "–", "–"]
    assert not [row for row in table_of(report, "tenants").rows if (row[0].text or "").startswith("mps-t7")]
    assert [fact.text for fact in report.warnings if fact.tone == "fail"] == [
        "yolos-small in k8s: mps-t7-r1, mps-t7-r2 and mps-t7-r3 not valid: no MPS client was seen"
    ]


def test_an_invalid_cell_without_a_reason_lacks_evidence() -> None:
    cells = (shared_cell("mps", valid=False, evidence={}),)
    table = table_of(report_of(sharing_record(("mps",), rows=(), cells=cells)), "failures")
    assert texts(table) == [["mps-t7-r1", "invalid", "nothing proves that the technique was active"]]


def test_a_failed_cell_says_what_to_do() -> None:
    failure = Failure(cell="mps-t7-r1", kind="WorkerError", what="a tenant died", next="look at events.jsonl")
    report = report_of(sharing_record(("mps",), (1,), failures=(failure,)))
    assert texts(table_of(report, "failures")) == [["mps-t7-r1", "failed", "a tenant died", "look at events.jsonl"]]
    (row,) = [row for row in table_of(report, "sharing").shown_rows if row[1].value == 7]
    assert row[3].detail == "failed: a tenant died"


def test_every_tenant_has_a_row_with_its_own_figures() -> None:
    first = tenant(1, "cpu-shared", 2, "c", errors=3)
    second = tenant(2, "cpu-shared", 2, "c", p90_ms=99.0, p99_ms=101.0)
    cells = (shared_cell("cpu-shared", 2, results=(first, second)),)
    report = report_of(sharing_record(("cpu-shared",), (2,), cells=cells))
    table = table_of(report, "tenants")
    assert [column.title for column in table.shown_columns] == [
        "cell", "tenant", "may use", "inferences", "throughput", "mean", "p50", "p90", "p99", "errors",
    ]  # fmt: skip
    assert texts(table) == [
        ["cpu-shared-t2-r1", "1", "up to all cores", "115", "11.49", "87", "85.26", "–", "–", "3"],
        ["cpu-shared-t2-r1", "2", "up to all cores", "114", "11.38", "87.87", "86.11", "99", "101", "0"],
    ]
    (section,) = [section for section in report.sections if section.name == "tenants"]
    assert section.folded


def test_hundreds_of_tenants_are_cut_for_people_and_not_for_programs() -> None:
    many = tuple(tenant(i + 1, "cpu-shared", 48, "c") for i in range(MOST_ROWS + 100))
    report = report_of(sharing_record(("cpu-shared",), (48,), cells=(shared_cell("cpu-shared", 48, results=many),)))
    table = table_of(report, "tenants")
    assert (len(table.shown_rows), len(table.rows)) == (MOST_ROWS, MOST_ROWS + 100)
    assert "The first 400 of 500 rows; the report as JSON has all of them." in table.notes


def test_overlap_repeats_and_prometheus_are_told_above_the_charts() -> None:
    (section,) = [section for section in report_of(gpu_record()).sections if section.name == "sharing"]
    assert section.intro == (
        "yolos-small in k8s: 3 repeats; all tenants ran together for at least 96.3 % of each cell's time. Prometheus, "
        "queried as users do, is within 0.6 % of our mean (33 cells). 3 cells not valid. Invalid cells are not in any "
        "figure or chart."
    )


def test_the_cross_check_has_a_column_only_where_prometheus_was_asked() -> None:
    without = table_of(report_of(sharing_record()), "shared_cells")
    assert "Prometheus" not in [column.title for column in without.columns]
    cells = (shared_cell("mps", cross_check=cross_check(320.0, -1.5)),)
    table = table_of(report_of(sharing_record(("mps",), (7,), cells=cells)), "shared_cells")
    assert texts(table)[0][-3:] == ["320", "315.2", "−1.50"]
    assert any("inference_time_seconds_sum" in note for note in table.notes)


def test_evidence_and_effective_limits_stand_side_by_side() -> None:
    table = table_of(report_of(gpu_record()), "sharing_evidence")
    assert [column.title for column in table.columns] == ["fact", "Time-slicing", "MPS", "MIG"]
    assert ["active", "yes", "yes", "yes"] in texts(table), "of the cells that count"
    assert ["tenant.memory_limit_mb", "1024", "1024", "1024"] in texts(table)


def test_limits_that_differ_between_tenants_are_all_shown_up_to_a_few() -> None:
    def cell(number: int) -> Any:
        own = tuple(tenant(i + 1, "mps", number, "c", evidence={"sm_percent": 10 + i}) for i in range(number))
        return shared_cell("mps", number, results=own)

    two = table_of(report_of(sharing_record(("mps",), (2,), cells=(cell(2),))), "sharing_evidence")
    assert ["tenant.sm_percent", "10 / 11"] in texts(two)
    seven = table_of(report_of(sharing_record(("mps",), (7,), cells=(cell(7),))), "sharing_evidence")
    assert ["tenant.sm_percent", "10 / 11 / 12 / 13 … (7 values)"] in texts(seven)


def test_what_proves_nothing_is_shown_where_nothing_else_is() -> None:
    record = sharing_record(("mps",), rows=(), cells=(invalid_cell("mps", reason="no client"),))
    rows = texts(table_of(report_of(record), "sharing_evidence"))
    assert ["active", "no"] in rows
    assert ["reasons", "no client"] in rows


def test_neighbours_have_intervals_and_what_is_not_distinguishable_is_called_so() -> None:
    rows = (
        neighbour(percent=38.0, p99_slowdown_percent=figure(50.0, 10.0)),
        neighbour(aggressor="compute", percent=1.0),
    )
    table = table_of(report_of(neighbours_record(neighbours=rows)), "neighbours")
    first, second = table.shown_rows
    assert [cell.text for cell in first] == [
        "GPU proxy", "memory", "micro single-stream", "+38.0 % (95 % CI +35.0 to +41.0)",
        "+50.0 % (95 % CI +45.0 to +55.0)", "0.5", "0.69", "40", "0",
    ]  # fmt: skip
    assert (first[3].value, first[3].low, first[3].high) == (38.0, 35.0, 41.0)
    assert second[3].detail == "not distinguishable from none"


def test_an_invalid_neighbour_has_its_reason_and_no_number() -> None:
    died = WarningRecord(code="died", text="it did not start again")
    table = table_of(report_of(neighbours_record(neighbours=(neighbour(valid=False, warnings=(died,)),))), "neighbours")
    (row,) = table.shown_rows
    assert (row[3].text, row[3].detail, row[3].value) == ("invalid", "it did not start again", None)
    assert [cell.text for cell in row[4:7]] == ["–", "–", "–"]


def test_isolation_is_pass_fail_or_not_tried_in_words() -> None:
    report = report_of(neighbours_record())
    table = table_of(report, "isolation")
    assert [row[2] for row in texts(table)] == ["✓ pass", "✗ fail", "– not tried"]
    assert [row[2].value for row in table.rows] == ["pass", "fail", "not tried"]
    assert report.warnings[-1].tone == "fail"
    assert report.warnings[-1].text.endswith("read 4 of 4,096 bytes of another tenant")


def test_a_stand_in_fails_in_the_table_with_the_reason_and_last_among_the_mild_warnings() -> None:
    noted = WarningRecord(code="busy", text="others were busy")
    report = report_of(neighbours_record("cpu-shared", "cpu-quota", neighbours=(), warnings=(noted,)))
    table = table_of(report, "isolation")
    (first, _) = [row[2] for row in table.rows if row[2].value == "fail"]
    assert (first.text, first.tone, first.detail) == ("✗ fail", "fail", "by nature of the stand-in")
    assert any("processes of one user" in note for note in table.notes)
    assert [(fact.text, fact.tone) for fact in report.warnings] == [
        ("micro:operation in bare: others were busy", ""),
        (
            "micro:operation in bare: cpu-shared (stand-in) and cpu-quota (stand-in): memory is not isolated, by "
            "nature of a stand-in: read 4 of 4,096 bytes of another tenant",
            "",
        ),
    ]
    real = table_of(report_of(neighbours_record("proxy")), "isolation")
    assert real.notes == ()
    assert {row[2].detail for row in real.rows} == {""}


def test_two_experiments_keep_their_devices_and_directories_apart() -> None:
    report = report_of(sharing_record(), sharing_record(("cpu-shared",)), gpu_record())
    titles = [table.title for table in report.tables if table.name == "pods"]
    middle = "mean inference time in seconds by number of"
    assert titles == [
        f"yolos-small in bare (share-0): {middle} tenants on {CPU}",
        f"yolos-small in bare (share-1): {middle} tenants on {CPU}",
        f"yolos-small in k8s: {middle} Pods on {GPU}",
    ]


def test_an_unfinished_experiment_is_said_to_be_so() -> None:
    report = report_of(sharing_record(complete=False, cells=(shared_cell("cpu-shared"),)))
    assert report.warnings[0].text == "yolos-small in bare: unfinished, 1 of 24 cells are measured."
    assert report.warnings[0].tone == "fail"


def test_a_warning_is_told_once_with_its_worst_case() -> None:
    cells = tuple(
        shared_cell("cpu-shared", 7, repeat, warnings=(WarningRecord(code="busy", text=f"{repeat} %", value=repeat),))
        for repeat in (1, 2, 3)
    )
    report = report_of(sharing_record(("cpu-shared",), (7,), cells=cells))
    assert [fact.text for fact in report.warnings] == ["yolos-small in bare: 3 % (cpu-shared-t7-r3; worst of 3 cells)"]


def test_stand_ins_are_explained_and_real_techniques_are_not() -> None:
    (first,) = [section.intro for section in report_of(sharing_record()).sections if section.name == "sharing"]
    assert first.startswith("cpu-shared and cpu-quota are stand-ins: the same experiment on a CPU")
    (second,) = [section.intro for section in report_of(gpu_record()).sections if section.name == "sharing"]
    assert "stand-in" not in second


def test_numbers_that_are_none_are_dashes() -> None:
    rows = (shared_row("mps", 7, jain=figure(math.nan), aggregate_per_s=figure(math.inf), p99_ms=figure(None)),)
    table = table_of(report_of(sharing_record(("mps",), (7,), rows=rows)), "sharing_answer")
    assert texts(table)[0][3:] == ["–", "3.632", "–", "–"]
    assert table.rows[0][6].value is None


def test_nothing_measured_is_nothing_to_report() -> None:
    with pytest.raises(ResultsError, match="nothing was measured"):
        report_of(sharing_record((), ()))


def test_how_to_do_it_again_is_told() -> None:
    assert report_of(sharing_record()).commands == (
        "# As results/share-0/sharing.json says:",
        "gputax share --env bare --tenants 1,3,5,7",
        "gputax report results/share-0/sharing.json",
    )


def test_tokens_are_told_where_the_workload_has_them() -> None:
    made = gpu_record()
    assert not [note for note in table_of(report_of(made), "sharing_answer").notes if "tokens" in note]
    rates = iter(range(100, 1000))
    figures: dict[str, float | None] = {"ttft_p50_ms": 4.0, "ttft_p90_ms": 5.0, "ttft_p99_ms": None, "tpot_p50_ms": 1.5}
    cells = tuple(
        cell.model_copy(update={"tokens": {**figures, "tokens_per_sec": float(next(rates))}})
        if (cell.technique, cell.tenants) == ("mig", 3)
        else cell
        for cell in made.cells
    )
    count = next(rates) - 100
    table = table_of(report_of(made.model_copy(update={"cells": cells})), "sharing_answer")
    (line,) = [note for note in table.notes if "tokens/s" in note]
    assert line.startswith(f"MIG, 3 tenants: {100 + (count - 1) / 2:g} tokens/s together")
    assert "ttft p50 4, p90 5, p99 – ms; tpot p50 1.5, p90 –, p99 – ms" in line
    assert [note for note in table.console[0].notes if note == line]
    assert [note for note in table.notes if note.startswith("Tokens of all tenants, the median of the repeats.")]
