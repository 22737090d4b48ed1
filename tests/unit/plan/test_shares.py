"""Shares as they are written, and the cells that show what became of them."""

from __future__ import annotations

from collections import Counter

import pytest

from gputax.errors import UsageError
from gputax.plan.cells import Setup
from gputax.plan.shares import AskingPlan, asking, parse_shares
from gputax.plan.techniques import SharePlan

SETUP = Setup("resnet50", engine="onnx")


def plan(shares: tuple[float, ...], place: str = "bare", technique: str = "cpu-quota", repeats: int = 1) -> AskingPlan:
    return asking(SharePlan(place, (technique,), (len(shares),), SETUP, repeats=repeats), shares)


@pytest.mark.parametrize(
    ("text", "shares"),
    [("30,70", (0.3, 0.7)), ("1/3", (1 / 3,) * 3), ("20, 30", (0.2, 0.3)), ("12.5,50", (0.125, 0.5))],
)
def test_shares_are_percentages_or_equal_parts(text: str, shares: tuple[float, ...]) -> None:
    assert parse_shares(text) == pytest.approx(shares)


@pytest.mark.parametrize("text", ["", "30", "1/1", "1/0", "0,50", "60,60", "100,10", "a,b", "nan,20", "-10,30"])
def test_other_shares_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_shares(text)
    assert "--shares 30,70" in refused.value.next_step


def test_each_share_is_measured_alone_beside_equals_and_beside_greedy_ones() -> None:
    cells = plan((0.3, 0.7)).cells()
    found = {(cell.situation, cell.number): cell.shares for cell in cells}
    assert found == {
        ("whole", 0): (1.0,),
        ("alone", 1): (0.3,),
        ("alone", 2): (0.7,),
        ("equals", 0): (0.3, 0.7),
        ("greedy", 1): (0.3, 0.7),
        ("greedy", 2): (0.7, 0.3),
    }
    assert len({cell.id for cell in cells}) == len(cells)


def test_tenants_that_ask_for_the_same_are_measured_once_alone() -> None:
    counted = Counter(cell.situation for cell in plan((0.25,) * 4, repeats=2).cells())
    assert counted == {"whole": 2, "alone": 2, "equals": 2, "greedy": 2}


def test_on_a_node_the_whole_device_is_another_technique_once_a_repeat() -> None:
    both = asking(SharePlan("k8s", ("mps", "time-slicing"), (2,), SETUP, repeats=2), (0.5, 0.5))
    whole = [cell for cell in both.cells() if cell.situation == "whole"]
    assert [(cell.technique, cell.repeat) for cell in whole] == [("exclusive", 1), ("exclusive", 2)]


def test_only_the_neighbours_are_greedy() -> None:
    asked = plan((0.3, 0.7))
    depths = {cell.situation: asked.in_flight_of(cell) for cell in asked.cells()}
    assert depths == {"whole": (4,), "alone": (4,), "equals": (4, 4), "greedy": (4, 16)}


def test_an_engine_that_runs_one_batch_after_the_other_is_refused() -> None:
    waiting = SharePlan("bare", ("cpu-quota",), (2,), Setup("resnet50", engine="torch"))
    with pytest.raises(UsageError, match="cannot keep 4 runs in flight"):
        asking(waiting, (0.3, 0.7))
    assert asking(waiting, (0.3, 0.7), in_flight=1).in_flight == 1


def test_exclusive_and_a_tolerance_of_nothing_are_refused() -> None:
    with pytest.raises(UsageError, match="exclusive shares nothing"):
        plan((0.5, 0.5), "k8s", "exclusive")
    with pytest.raises(UsageError, match="--tolerance"):
        asking(plan((0.5, 0.5)), (0.5, 0.5), tolerance_percent=0.0)
