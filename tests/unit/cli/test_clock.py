"""The time left of a run, as cells take longer than their plan lets expect."""

from __future__ import annotations

import pytest

from gputax.cli import progress
from gputax.cli.progress import Clock, expected_s
from gputax.plan.cells import Cell, LoadPlan, Setup

CELL = Cell(Setup("yolos-small"), "saturate", 1, "bare+cpu-shared", 3, LoadPlan(duration_s=7.0))


class Hand:
    """A clock's hand that only the test moves."""

    now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> Hand:
    hand = Hand()
    monkeypatch.setattr(progress, "time", hand)
    return hand


def test_before_the_first_cell_ended_its_stretched_time_counts_for_all(hand: Hand) -> None:
    clock = Clock()
    clock.run_started((CELL,) * 40)
    clock.cell_started(1)
    hand.now_s += 8  # starting
    clock.phase_started()
    hand.now_s += 10  # a fifth of the load
    assert clock.left_s(20, 100) == pytest.approx(40 + 39 * 58)


def test_what_ended_cells_took_counts_for_those_left(hand: Hand) -> None:
    clock = Clock()
    clock.run_started((CELL,) * 4)
    for number, took_s in ((1, 60.0), (2, 40.0)):
        clock.cell_started(number)
        hand.now_s += took_s
    clock.cell_started(3)
    hand.now_s += 10
    assert clock.left_s(50, 100) == pytest.approx(10 + 50)


def test_a_plan_that_is_kept_is_believed(hand: Hand) -> None:
    clock = Clock()
    clock.run_started((CELL,) * 2)
    clock.cell_started(1)
    hand.now_s += 1
    assert clock.left_s(99, 100) == pytest.approx(expected_s(CELL), abs=0.1)
