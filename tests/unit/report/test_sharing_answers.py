from __future__ import annotations

from typing import Any

import pytest

from gputax.report.model import Fact
from gputax.report.sharing_answers import at_most_tenants, experiments_of, ranked, sharing_answers
from gputax.report.sources import Sources
from gputax.report.story import build_report
from gputax.results.documents.base import Failure
from gputax.results.documents.sharing import NeighbourRow, SharedFigure, SharedRow, SharingRecord
from tests.builders.documents import CPU, comparison, metric, run_source, sources
from tests.builders.shared_documents import (
    GPU,
    figure,
    gpu_record,
    invalid_cell,
    isolation,
    neighbour,
    neighbours_record,
    shared,
    shared_cell,
    shared_row,
    sharing_record,
)


def record_of(*rows: SharedRow, **changes: object) -> SharingRecord:
    """An experiment that is these rows, and whose cells are not looked at."""
    names = list(dict.fromkeys(row.technique for row in rows))
    return sharing_record(names, (), rows=rows, **changes)


def answers(*records: SharingRecord, name_device: bool = False) -> list[Fact]:
    return sharing_answers(experiments_of(shared(*records).sharing), name_device=name_device)


def sentence(record: SharingRecord) -> str:
    (fact,) = answers(record)
    return fact.text


def row(technique: str, mean: float, half_percent: float | None = 2.0) -> SharedRow:
    return shared_row(technique, 7, mean_ms=figure(mean, half_percent), slowdown=figure(3.0))


def test_the_lowest_mean_comes_with_interval_entitlement_and_growth_and_the_others_beside() -> None:
    assert sentence(record_of(row("mps", 320.0), row("mig", 344.0), row("time-slicing", 685.0))) == (
        "7 tenants of yolos-small: MPS (each tenant 14 % of the SMs, 11.4 GB) has the lowest mean latency, 320 ms "
        "(95 % CI 313.6 to 326.4), 3 times that of one tenant; MIG (each tenant 1g.10gb) with 344 ms and Time-slicing "
        "(each tenant up to all of it) with 685 ms are slower."
    )


def test_where_intervals_overlap_nobody_wins() -> None:
    text = sentence(record_of(row("mps", 320.0, 5.0), row("mig", 344.0, 5.0), row("time-slicing", 685.0)))
    assert "MIG (each tenant 1g.10gb) with 344 ms is not distinguishable from it" in text
    assert "Time-slicing (each tenant up to all of it) with 685 ms is slower" in text


def test_one_repeat_ranks_nothing() -> None:
    text = sentence(record_of(row("mps", 320.0, None), row("mig", 344.0, None)))
    assert "320 ms (no interval)" in text
    assert text.endswith("MIG (each tenant 1g.10gb) with 344 ms cannot be ranked without an interval.")


def test_a_bound_that_does_not_exist_overlaps_everything() -> None:
    open_above = row("mps", 100.0).model_copy(update={"mean_ms": SharedFigure(value=100.0, ci95=(90.0, None))})
    assert "is not distinguishable" in sentence(record_of(open_above, row("mig", 900.0)))


def test_stand_ins_are_called_so_in_the_answer() -> None:
    assert sentence(sharing_record()) == (
        "7 tenants of yolos-small: cpu-quota (stand-in, each tenant 2/7 of a core) has the lowest mean latency, "
        "172.2 ms (95 % CI 168.8 to 175.6), 1.007 times that of one tenant; cpu-shared (stand-in, each tenant up to "
        "all cores) with 222 ms is slower."
    )


def test_one_technique_is_told_without_a_rank() -> None:
    assert sentence(sharing_record(("cpu-shared",))) == (
        "7 tenants of yolos-small: cpu-shared (stand-in, each tenant up to all cores) has a mean latency of 222 ms "
        "(95 % CI 217.6 to 226.4), 3.7 times that of one tenant."
    )


def test_one_tenant_has_no_growth() -> None:
    text = sentence(sharing_record(("cpu-shared",), (1,)))
    assert text.startswith("1 tenant of yolos-small: ")
    assert "times" not in text


def test_a_technique_without_a_valid_figure_is_named_and_not_ranked() -> None:
    assert sentence(gpu_record()).endswith("; MPS has no valid figure.")


def test_a_row_over_cells_that_are_all_invalid_is_no_figure() -> None:
    cells = (shared_cell("cpu-shared"), invalid_cell("cpu-quota"))
    rows = (row("cpu-shared", 200.0), row("cpu-quota", 100.0))
    text = sentence(sharing_record(rows=rows, cells=cells))
    assert "cpu-shared (stand-in, each tenant up to all cores) has a mean latency of 200 ms" in text
    assert "100 ms" not in text


def test_when_the_most_tenants_have_no_figure_the_answer_says_so() -> None:
    made = sharing_record(("cpu-shared",), (1, 3), rows=(shared_row("cpu-shared", 1),), cells=(
        shared_cell("cpu-shared", 1), invalid_cell("cpu-shared", 3)))  # fmt: skip
    assert sentence(made).startswith("1 tenant of yolos-small: ")
    assert sentence(made).endswith("; with 3 tenants no technique has a valid figure.")


def test_nothing_valid_is_a_failure_and_not_a_number() -> None:
    (fact,) = answers(sharing_record(("mps",), rows=(), cells=(invalid_cell("mps"),)))
    assert fact == Fact("yolos-small: no technique has a valid figure (MPS).", "fail")


def test_what_failed_before_it_had_a_cell_is_told() -> None:
    failure = Failure(cell="", kind="PreflightError", what="no cgroup may be written")
    (fact,) = answers(sharing_record((), (), failures=(failure,)))
    assert fact == Fact("yolos-small: nothing could be measured: no cgroup may be written", "fail")


def test_exclusive_is_not_missed_where_it_cannot_be() -> None:
    rows = (shared_row("exclusive", 1), row("mps", 320.0))
    (experiment,) = experiments_of(shared(record_of(*rows)).sharing)
    assert [point.technique for point in at_most_tenants(experiment)] == ["mps"]


def test_each_is_ranked_against_the_lowest() -> None:
    (experiment,) = experiments_of(shared(record_of(row("mps", 320.0), row("mig", 324.0), row("proxy", 1.0))).sharing)
    order = ranked(at_most_tenants(experiment))
    assert [(point.technique, standing) for point, _, standing in order] == [
        ("proxy", "lowest"), ("mps", "higher"), ("mig", "higher"),
    ]  # fmt: skip


def beside(aggressor: str, percent: float, low: float | None, high: float | None) -> NeighbourRow:
    figure = SharedFigure(value=percent, ci95=(low, high))
    made: NeighbourRow = neighbour(aggressor=aggressor, slowdown_percent=figure)
    return made


def test_one_figure_alone_is_the_lowest_of_nothing() -> None:
    (experiment,) = experiments_of(shared(gpu_record()).sharing)
    alone = [point for point in at_most_tenants(experiment) if point.technique != "time-slicing"]
    assert [(point.technique, standing) for point, _, standing in ranked(alone)] == [("mig", "the only figure")]


def test_neighbours_are_told_by_the_worst_of_each_technique() -> None:
    rows = (neighbour(percent=38.0), neighbour(aggressor="compute", percent=4.0), neighbour("cpu-quota", percent=1.0))
    (fact,) = answers(neighbours_record(neighbours=rows, isolation=()))
    assert fact == Fact(
        "micro:operation beside a neighbour: slowed most by memory under GPU proxy, +38.0 % (95 % CI +35.0 to +41.0); "
        "no measurable slowdown under cpu-quota (stand-in)."
    )


def test_the_headline_names_the_largest_slowdown_that_is_one_and_not_a_larger_one_that_may_be_chance() -> None:
    rows = (beside("compute", 4.95, 0.94, 9.12), beside("crash", 7.0, -20.6, 44.2), beside("memory", 2.0, 1.0, 3.0))
    (fact,) = answers(neighbours_record(neighbours=rows, isolation=()))
    assert fact.text == (
        "micro:operation beside a neighbour: slowed most by compute under GPU proxy, +5.0 % (95 % CI +0.9 to +9.1)."
    )


@pytest.mark.parametrize(("low", "high"), [(-20.6, 44.2), (None, None), (None, 44.2), (0.0, 44.2), (-9.0, -1.0)])
def test_where_no_interval_lies_above_none_no_neighbour_is_named(low: float | None, high: float | None) -> None:
    (fact,) = answers(neighbours_record(neighbours=(beside("crash", 7.0, low, high),), isolation=()))
    assert fact == Fact("micro:operation beside a neighbour: no measurable slowdown under GPU proxy.")


def test_what_a_stand_in_cannot_isolate_by_nature_does_not_make_the_answer_a_failure() -> None:
    (fact,) = answers(neighbours_record("cpu-shared", "cpu-quota", neighbours=()))
    assert fact == Fact(
        "micro:operation beside a neighbour: isolation held in 2 checks, 2 not tried; memory is not isolated, by "
        "nature of the stand-ins."
    )
    (real,) = answers(neighbours_record("proxy", "cpu-quota", neighbours=()))
    assert real.tone == "fail"
    assert "isolation is broken in 1 of 3 checks, 2 not tried; memory is not isolated, by nature" in real.text


def test_a_stand_in_whose_crash_spreads_is_broken_and_not_so_by_nature() -> None:
    spread = isolation("cpu-quota")[2].model_copy(update={"passed": False})
    (fact,) = answers(neighbours_record(neighbours=(), isolation=(spread,)))
    assert fact == Fact("micro:operation beside a neighbour: isolation is broken in 1 of 1 check.", "fail")


@pytest.mark.parametrize(
    ("kept", "said", "tone"),
    [
        (slice(0, 1), "isolation held in 1 check", ""),
        (slice(0, 2), "isolation is broken in 1 of 2 checks", "fail"),
        (slice(0, 3), "isolation is broken in 1 of 2 checks, 1 not tried", "fail"),
        (slice(2, 3), "isolation not tried", ""),
    ],
)
def test_isolation_is_told_in_words(kept: slice, said: str, tone: Any) -> None:
    (fact,) = answers(neighbours_record(neighbours=(), isolation=isolation("proxy")[kept]))
    assert fact == Fact(f"micro:operation beside a neighbour: {said}.", tone)


def test_neighbours_without_a_valid_figure_are_a_failure() -> None:
    (fact,) = answers(neighbours_record(neighbours=(neighbour(valid=False),), isolation=()))
    assert fact == Fact("micro:operation beside a neighbour: no valid figure.", "fail")


def test_several_devices_are_named_in_each_sentence() -> None:
    report = build_report(shared(sharing_record(), gpu_record()))
    assert report.answer.text.startswith(f"On {CPU}, 7 tenants of yolos-small in bare: ")
    assert [fact.text.split(": ")[0] for fact in report.more_answers] == [f"On {GPU}, 7 tenants of yolos-small in k8s"]
    assert report.devices == (CPU, GPU)
    assert report.answer_table is None, "two devices never share a table"


def test_the_layers_answer_first_and_sharing_after_them() -> None:
    made = sources(comparison(metric()), runs=(run_source(),))
    report = build_report(Sources(made.runs, made.comparisons, shared(sharing_record()).sharing))
    assert report.question == "What does it cost? What does a tenant get when the device is shared?"
    assert report.answer.tone == "pass"
    assert [fact.text.split(":")[0] for fact in report.more_answers] == ["7 tenants of yolos-small"]
    assert report.answer_table is not None
    assert report.answer_table.name == "metrics"


def test_sharing_answers_more_than_a_run_does() -> None:
    report = build_report(Sources(runs=(run_source(),), sharing=shared(sharing_record()).sharing))
    assert report.answer.text.startswith("7 tenants of yolos-small: ")
    assert [section.name for section in report.sections] == [
        "sharing", "latency", "cells", "tenants", "telemetry", "ground",
    ]  # fmt: skip


def test_neighbours_alone_are_a_question_of_their_own() -> None:
    report = build_report(shared(neighbours_record()))
    assert report.question == "What does a neighbour cost a tenant?"
    assert report.answer_table is not None
    assert report.answer_table.name == "neighbours"
    assert [chart.name for chart in report.charts] == ["overview-1", "neighbours-1"]
