"""Rate searches against a simulated server that holds up to a known rate."""

from __future__ import annotations

import random

import pytest

from gputax.errors import CellError
from gputax.measure.sizing import PEAK_PRECISION, find_peak, find_rate


def test_find_rate_takes_the_first_share_that_holds() -> None:
    search = find_rate(100.0, lambda rate, _: rate <= 60.0)
    assert search.rate_per_s == pytest.approx(52.5)
    assert search.probes == ((70.0, False), (pytest.approx(52.5), True))


def test_find_rate_gives_up_with_a_way_out() -> None:
    with pytest.raises(CellError) as raised:
        find_rate(100.0, lambda rate, _: False)
    assert "--bound-ms" in raised.value.next_step


@pytest.mark.parametrize("true_peak", [3.0, 40.0, 69.0, 71.0, 400.0])
def test_find_peak_brackets_the_true_peak(true_peak: float) -> None:
    search = find_peak(100.0, lambda rate, _: rate <= true_peak)
    assert search.first_failing_per_s is not None
    assert search.rate_per_s <= true_peak < search.first_failing_per_s
    assert search.first_failing_per_s / search.rate_per_s <= PEAK_PRECISION


def test_find_peak_is_not_led_astray_by_one_probe_in_ten() -> None:
    generator = random.Random(5)

    def noisy(rate: float, repeat: int) -> bool:
        return (rate <= 50.0) != (generator.random() < 0.1)

    found = [find_peak(100.0, noisy).rate_per_s for _ in range(50)]
    near = [rate for rate in found if 50.0 / 1.1 <= rate <= 50.0 * 1.1]
    assert len(near) >= 40


def test_find_peak_repeats_each_rate_until_a_majority() -> None:
    search = find_peak(100.0, lambda rate, _: rate <= 50.0)
    by_rate = {rate: [won for other, won in search.probes if other == rate] for rate, _ in search.probes}
    assert all(len(results) == 2 for results in by_rate.values()), "two equal probes decide"


def test_find_peak_says_when_there_is_none() -> None:
    with pytest.raises(CellError, match="no peak was found"):
        find_peak(100.0, lambda rate, _: True)
    with pytest.raises(CellError, match="no server rate"):
        find_peak(100.0, lambda rate, _: False)
