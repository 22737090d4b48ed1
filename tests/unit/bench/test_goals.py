"""The tool's own goals are judged as it judges others: by the whole interval."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from bench.goals import GOALS, Goal, judge


@pytest.mark.parametrize(
    ("comparison", "interval", "outcome"),
    [
        ("<=", [0.98, 1.0], "ok"),
        ("<=", [0.98, 1.01], "ok"),
        ("<=", [0.98, 1.02], "unsure"),
        ("<=", [1.02, 1.05], "MISSED"),
        (">=", [1.02, 1.05], "ok"),
        (">=", [0.98, 1.02], "unsure"),
        (">=", [0.98, 1.0], "MISSED"),
    ],
)
def test_the_whole_interval_decides(comparison: Literal["<=", ">="], interval: list[float], outcome: str) -> None:
    judged = judge(Goal("figure", comparison, 1.01), {"figure": sum(interval) / 2, "figure_ci95": interval})
    assert judged is not None
    assert judged.outcome == outcome
    assert judged.text.startswith(outcome)
    assert f"95 % interval {interval[0]:g} to {interval[1]:g}" in judged.text


@pytest.mark.parametrize(("value", "outcome"), [(0.9, "ok"), (1.01, "ok"), (1.2, "MISSED"), (True, "ok")])
def test_without_an_interval_the_value_decides(value: Any, outcome: str) -> None:
    judged = judge(Goal("figure", "<=", 1.01), {"figure": value})
    assert judged is not None
    assert judged.outcome == outcome
    assert "interval" not in judged.text


def test_what_was_not_measured_is_not_judged() -> None:
    assert judge(Goal("figure", "<=", 1.0), {"figure": None}) is None
    assert judge(Goal("figure", "<=", 1.0), {}) is None


def test_no_goal_is_there_twice() -> None:
    assert len({goal.key for goal in GOALS}) == len(GOALS)
