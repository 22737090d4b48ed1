from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import t as student

from gputax.errors import UsageError
from gputax.stats.stopping import StopRule, decide

RULE = StopRule(half_width_percent=1.0, max_pairs=100, max_time_s=60.0)


def logs(pairs: int, sd: float = 0.01, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.03, sd, pairs)


def test_nothing_measured_is_the_pilot() -> None:
    assert decide([], RULE, 0.0).reason == "pilot"
    assert decide([logs(1)], RULE, 0.0).half_width_percent is None


@pytest.mark.parametrize(("pairs", "stop"), [(9, False), (10, False), (14, False), (15, True)])
def test_the_width_counts_after_the_pilot_and_five_more(pairs: int, stop: bool) -> None:
    assert decide([logs(15, sd=0.001)[:pairs]], RULE, 0.0).stop is stop


def test_a_width_that_was_only_just_reached_must_hold() -> None:
    quiet = logs(10, sd=0.001)
    loud_then_quiet = np.concatenate((logs(10, sd=0.03), quiet))
    widths = [decide([loud_then_quiet[:n]], RULE, 0.0).half_width_percent for n in (15, 20)]
    assert widths[0] is not None
    assert widths[1] is not None
    between = StopRule((widths[0] + widths[1]) / 2, 100, 60.0)
    assert widths[1] < between.half_width_percent < widths[0]
    assert decide([loud_then_quiet], between, 0.0).reason == "too wide"
    assert decide([loud_then_quiet], StopRule((widths[0] + widths[1]) / 2, 100, 60.0, settle_pairs=0), 0.0).stop


def test_the_width_is_that_of_the_t_interval() -> None:
    values = logs(20)
    width = decide([values], RULE, 0.0).half_width_percent
    assert width == pytest.approx(100 * student.ppf(0.975, 19) * values.std(ddof=1) / math.sqrt(20))


def test_what_the_pairs_show_has_no_say() -> None:
    for seed in range(20):
        values = logs(25, sd=0.02, seed=seed)
        decisions = {decide([values + shift], RULE, 0.0).stop for shift in (-1.0, 0.0, 0.05, 1.0)}
        assert len(decisions) == 1


def test_the_widest_metric_decides() -> None:
    narrow, wide = logs(30, sd=0.001), logs(30, sd=0.1)
    assert decide([narrow], RULE, 0.0).reason == "narrow enough"
    both = decide([narrow, wide], RULE, 0.0)
    assert both.reason == "too wide"
    assert both.half_width_percent == decide([wide], RULE, 0.0).half_width_percent


@pytest.mark.parametrize(("pairs", "elapsed_s", "reason"), [(100, 0.0, "max pairs"), (3, 60.0, "max time")])
def test_pairs_and_time_are_capped(pairs: int, elapsed_s: float, reason: str) -> None:
    decision = decide([logs(pairs, sd=1.0)], RULE, elapsed_s)
    assert (decision.stop, decision.reason) == (True, reason)


def test_a_wide_interval_says_how_many_pairs_to_expect() -> None:
    values = logs(20)
    values = 0.02 * (values - values.mean()) / values.std(ddof=1)
    assert decide([values], StopRule(0.6, 1000, 60.0), 0.0).pairs_expected == 46


def test_a_rule_that_can_never_end_well_is_refused() -> None:
    with pytest.raises(UsageError, match="can never be reached"):
        StopRule(0.0, 100, 60.0)
    with pytest.raises(UsageError, match="at least 2 pairs"):
        StopRule(1.0, 100, 60.0, pilot_pairs=1)
