"""A gate refuses a budget that the runner cannot see, and says how long it would take."""

from __future__ import annotations

import pytest

from gputax.api import duet_request
from gputax.errors import PreflightError
from gputax.measure.duet.gate import gate_s, gated_percent, refuse_below_noise
from gputax.results.documents.comparison import Resolution


def noise(half_width_percent: float, seconds: float = 24.0) -> Resolution:
    interval = (-half_width_percent, half_width_percent)
    return Resolution(
        half_width_percent=half_width_percent, ci95_percent=interval, pairs=50, seconds=seconds, contains_zero=True
    )


def test_a_budget_above_the_noise_is_measured() -> None:
    refuse_below_noise(noise(0.9), 1.0, 120.0)


def test_noise_that_the_rest_of_the_time_averages_out_is_no_reason() -> None:
    refuse_below_noise(noise(2.0), 1.0, 120.0)  # 2 % in 24 s are 0.9 % in 120 s


def test_a_budget_below_the_noise_is_refused_with_the_time_it_takes() -> None:
    with pytest.raises(PreflightError) as caught:
        refuse_below_noise(noise(3.0), 1.0, 120.0)
    assert "the budget of 1 % lies below this runner's noise: ±1.3 % after 2 min" in caught.value.what
    # To a quarter of the budget: 24 s * (3 / 0.25)^2.
    assert "--max-time 3456" in caught.value.next_step
    assert "about 58 min would decide it" in caught.value.next_step


def test_a_duet_as_long_as_said_is_not_refused() -> None:
    refuse_below_noise(noise(3.0), 1.0, 3456.0)


def test_a_control_without_an_interval_refuses_nothing() -> None:
    refuse_below_noise(noise(float("inf")), 1.0, 120.0)


def test_the_tightest_percentage_that_decides_is_the_gate() -> None:
    assert gated_percent(duet_request("bare", "bare+proxy", workload="micro:operation")) == 5.0
    assert gated_percent(duet_request("bare", "container")) == 1.0
    several = duet_request("bare", "container", budgets=("4%", "mean=3%", "p99=2ms"))
    assert gated_percent(several) == 3.0
    assert gated_percent(duet_request("bare", "container", budgets=("p50=2ms",))) is None


def test_a_fifth_of_the_time_and_not_less_than_it_needs() -> None:
    assert (gate_s(120.0), gate_s(10.0)) == (24.0, 8.0)
