from __future__ import annotations

from pathlib import Path

import pytest

from gputax.errors import UsageError
from gputax.plan.budgets import Budgets, parse_budgets
from gputax.plan.cells import plan_id
from gputax.plan.suites import Choices, load_suite, parse_suite, plan_cells, suite_names, wanted_budgets


def test_three_suites_ship() -> None:
    assert sorted(suite_names()) == ["mlperf", "quick", "standard"]


def test_standard_is_what_users_ran_by_hand() -> None:
    suite = load_suite("standard")
    assert suite.loads["offline"].duration_s == 30
    assert suite.batches["offline"] == (1, 8, 32)
    assert suite.loads["server"].min_samples == 1000
    assert suite.loads["single-stream"].min_samples == 500


def test_mlperf_is_loadgens_official_minimum() -> None:
    cells = {cell.scenario: cell for cell in plan_cells(load_suite("mlperf"), Choices())}
    assert all(cell.load.duration_s == 600 and cell.load.official for cell in cells.values())
    assert cells["offline"].load.min_samples == 24576
    assert cells["offline"].setup.sample_count == 1024
    assert cells["server"].load.percentile == 0.99


def test_the_quick_plan_in_its_order() -> None:
    cells = plan_cells(load_suite("quick"), Choices())
    assert [cell.id for cell in cells] == [
        "resnet50-offline-b1-bare",
        "resnet50-offline-b8-bare",
        "resnet50-offline-b32-bare",
        "resnet50-server-b8-bare",
        "resnet50-single-stream-b1-bare",
    ]
    assert len({cell.setup for cell in cells}) == 1, "one worker serves them all"


def test_choices_override_the_suite() -> None:
    choices = Choices(
        workloads=("resnet50", "yolos-small"),
        scenarios=("server", "multi-stream"),
        batches=(4,),
        setup={"engine": "synthetic"},
        load={"qps": 9.0},
    )
    cells = plan_cells(load_suite("quick"), choices)
    assert [(cell.setup.workload, cell.scenario, cell.batch_size) for cell in cells] == [
        ("resnet50", "server", 4),
        ("resnet50", "multi-stream", 8),
        ("yolos-small", "server", 4),
        ("yolos-small", "multi-stream", 8),
    ]
    assert {cell.load.qps for cell in cells} == {9.0}


def test_the_plan_id_changes_with_anything_that_shapes_a_number() -> None:
    suite = load_suite("quick")
    plans = [
        Choices(),
        Choices(setup={"threads": 1}),
        Choices(setup={"engine": "onnx:spin=false"}),
        Choices(batches=(2,)),
        Choices(load={"bound_ms": 20.0}),
    ]
    ids = [plan_id(plan_cells(suite, choices)) for choices in plans]
    assert len(set(ids)) == len(ids)
    assert ids[0] == plan_id(plan_cells(suite, Choices()))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("scenarios = [", "not a TOML file"),
        ("scenario = ['offline']", "unknown key 'scenario'"),
        ("scenarios = ['ofline']", "unknown scenario 'ofline'"),
        ("[offline]\ndurations = 3", "unknown key of [offline] 'durations'"),
        ("[offline]\nduration_s = -3", "not a number of zero or more"),
        ("[offline]\nduration_s = 'long'", "not a number of zero or more"),
        ("[offline]\nbatch = [0]", "not a list of whole numbers"),
        ("[offline]\nbatch = 8", "not a list of whole numbers"),
        ("[server]\npercentile = 99", "not between 0.5 and 1"),
        ("offline = 3", "offline = 3 is not a table"),
        ("budget = '5%'", "budget = '5%' is not a table"),
        ("[budget]\ndefault = 5", "default = 5 is not a budget"),
        ("[budget]\nthrougput = '5%'", "unknown metric, layer or environment 'througput'"),
    ],
)
def test_a_misspelt_suite_is_refused_and_not_half_understood(text: str, complaint: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_suite("mine", text, "mine.toml")
    assert complaint in raised.value.what
    assert "mine.toml" in raised.value.where


def test_a_suite_of_the_users_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('scenarios = ["offline"]\n[offline]\nbatch = [2]\nduration_s = 1\n')
    assert [cell.batch_size for cell in plan_cells(load_suite(str(path)), Choices())] == [2]
    with pytest.raises(UsageError, match="not found"):
        load_suite(str(tmp_path / "absent.toml"))


def test_a_suite_brings_its_budgets_and_the_command_line_counts_before_them(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[budget]\ndefault = "3%"\nlatency_p99 = "1ms"\nproxy = "4%"\n')
    budgets = load_suite(str(path)).budgets
    assert budgets.for_metric("bare", "bare", "throughput").value == 3.0
    assert budgets.for_metric("bare", "bare", "latency_p99").source == f"given by {path} [budget]"
    wanted = wanted_budgets(("latency_p99=5ms",), str(path))
    assert wanted.for_metric("bare", "bare+proxy", "throughput").value == 4.0
    assert wanted.for_metric("bare", "bare", "latency_p99").value == 5.0
    assert wanted_budgets(("1%",), "") == parse_budgets(("1%",))
    assert load_suite("quick").budgets == Budgets(), "the suites that ship leave the layers' own budgets"


def test_a_suite_of_budgets_alone_cannot_be_run(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[budget]\ndefault = "3%"\n')
    with pytest.raises(UsageError, match="has no scenario"):
        plan_cells(load_suite(str(path)), Choices())


def test_a_file_of_another_kind_is_no_suite(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(UsageError, match="is not a suite file") as raised:
        load_suite(str(tmp_path / "results.json"))
    assert ".toml" in raised.value.next_step


def test_a_binary_suite_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xff\x00\x80")
    with pytest.raises(UsageError, match="not a TOML file"):
        load_suite(str(path))


def test_an_unknown_suite_names_the_nearest() -> None:
    with pytest.raises(UsageError) as raised:
        load_suite("quik")
    assert "did you mean 'quick'?" in raised.value.next_step
