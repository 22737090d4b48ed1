"""The ratio of tokens: over the faster of the two loops."""

from __future__ import annotations

import pytest

from bench.__main__ import FIGURES
from bench.goals import GOALS
from bench.language_model import tokens_ratio


def test_the_loop_that_is_faster_over_all_pairs_is_the_other_side() -> None:
    found = tokens_ratio([(10.0, [8.0, 10.0]), (9.0, [10.0, 10.0]), (11.0, [10.0, 10.0])])
    assert found["llm_tiny_tokens_ratio"] == pytest.approx(1.0)
    assert found["llm_tiny_tokens_ratio_pairs"] == pytest.approx([1.0, 0.9, 1.1])
    assert found["llm_tiny_tokens_ratio_arrays"] == pytest.approx(1.1)


def test_it_has_a_goal_and_a_command() -> None:
    assert "language-model" in FIGURES
    assert any(goal.key == "llm_tiny_tokens_ratio" and goal.value == 0.97 for goal in GOALS)
