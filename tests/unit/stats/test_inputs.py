from __future__ import annotations

import numpy as np
import pytest

from gputax.errors import ResultsError
from gputax.stats.inputs import finite_values, log_ratios, positive_values


@pytest.mark.parametrize(
    ("bad", "shown"), [(float("nan"), "nan"), (0.0, "0"), (-3.0, "-3"), (float("inf"), "inf"), (None, "nan")]
)
def test_a_bad_value_is_named_with_its_side_and_pair(bad: float | None, shown: str) -> None:
    with pytest.raises(ResultsError, match=rf"B: pair 3 of 4 is {shown}$") as caught:
        log_ratios([1.0, 1.0, 1.0, 1.0], [1.0, 1.0, bad, 1.0])  # type: ignore[arg-type]
    assert caught.value.next_step == "drop the pair and report it, or measure again"


def test_several_bad_values_are_counted() -> None:
    with pytest.raises(ResultsError, match="A: pair 1 of 3 is 0, and 1 more are bad"):
        log_ratios([0.0, 1.0, -1.0], [1.0, 1.0, 1.0])


def test_halves_that_do_not_match_are_no_pairs() -> None:
    with pytest.raises(ResultsError, match="A has 2 values and B has 1"):
        log_ratios([1.0, 2.0], [1.0])


def test_nothing_is_an_error() -> None:
    with pytest.raises(ResultsError, match="A is empty"):
        log_ratios([], [])


def test_a_table_is_not_a_list() -> None:
    with pytest.raises(ResultsError, match="latency has 2 dimensions"):
        finite_values(np.ones((2, 2)), "latency")


def test_a_latency_of_zero_has_a_percentile_but_no_logarithm() -> None:
    assert finite_values([0, 5], "latency").tolist() == [0.0, 5.0]
    with pytest.raises(ResultsError, match="sample 1 of 2 is 0"):
        positive_values([0, 5], "latency")


def test_a_slower_b_costs_in_both_directions_of_better() -> None:
    assert log_ratios([2.0], [4.0], "lower") == pytest.approx([np.log(2.0)])
    assert log_ratios([4.0], [2.0], "higher") == pytest.approx([np.log(2.0)])


def test_no_ratio_overflows() -> None:
    assert np.isfinite(log_ratios([1e-300], [1e300])).all()
