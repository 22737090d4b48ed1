"""Overheads from log ratios: time added, and throughput lost as users compute it."""

from __future__ import annotations

import math

import pytest

from gputax.plan.metrics import METRICS
from gputax.stats.estimates import (
    log_of_lost_percent,
    lost_percent_interval,
    lost_percent_of_log,
    percent_of_log,
)


def test_42000_to_39900_samples_per_second_is_five_percent_lost() -> None:
    log = math.log(42_000.0 / 39_900.0)
    assert lost_percent_of_log(log) == pytest.approx(5.0)
    assert percent_of_log(log) == pytest.approx(5.263, abs=0.001)


def test_the_bounds_of_a_loss_stay_in_order() -> None:
    low, high = lost_percent_interval((math.log(0.9), math.log(2.0)))
    assert (low, high) == (pytest.approx(-100.0 / 9.0), pytest.approx(50.0))


def test_nothing_left_is_all_lost_and_an_unbounded_gain_has_no_bound() -> None:
    assert lost_percent_of_log(math.inf) == 100.0
    assert lost_percent_of_log(-math.inf) == -math.inf


@pytest.mark.parametrize("percent", [-50.0, 0.0, 1.0, 5.0, 99.0])
def test_a_loss_and_its_log_are_inverses(percent: float) -> None:
    assert lost_percent_of_log(log_of_lost_percent(percent)) == pytest.approx(percent)


def test_throughput_and_bandwidth_are_lost_and_time_is_added() -> None:
    assert {name for name, metric in METRICS.items() if metric.loss == "throughput"} == {
        "throughput",
        "tokens_per_s",
        "host_to_device",
        "device_to_host",
    }
