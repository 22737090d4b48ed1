"""A slowdown is a paired ratio with an interval; without evidence it is nothing."""

from __future__ import annotations

import numpy as np
import pytest

from gputax.measure.neighbours.record import neighbour_row
from gputax.measure.neighbours.slots import NeighbourPair
from gputax.plan.notices import Notice


def pairs(count: int, factor: float, *, samples: int = 100, drift: float = 0.0, seed: int = 7) -> list[NeighbourPair]:
    chance = np.random.default_rng(seed)
    found = []
    for number in range(count):
        level = 10e6 * (1 + drift * number)
        alone, beside = (chance.normal(level * scale, level * 0.01, samples) for scale in (1.0, factor))
        found.append(NeighbourPair(alone, beside, bool(number % 2), float(number), number // 2 + 1))
    return found


def test_the_slowdown_is_found_within_its_interval_in_spite_of_a_drift() -> None:
    row = neighbour_row("mps", "resnet50, single-stream", "memory", pairs(10, 1.25, drift=0.1), [])
    value, (low, high) = row.slowdown_percent.value, row.slowdown_percent.ci95 or (None, None)
    assert value == pytest.approx(25.0, abs=0.5)
    assert low is not None
    assert high is not None
    assert low < 25.0 < high
    assert high - low < 1.0
    assert row.pairs == 10
    assert row.beside_ms == pytest.approx(1.25 * row.alone_ms, rel=0.01)


def test_no_slowdown_is_not_called_one() -> None:
    low, high = neighbour_row("mps", "v", "compute", pairs(10, 1.0), []).slowdown_percent.ci95 or (None, None)
    assert low is not None
    assert high is not None
    assert low < 0.0 < high


def test_the_slowdown_is_the_ratio_of_the_two_columns_whatever_the_slots_hold() -> None:
    """Ratios of slots, averaged, would give a slot with one request the weight of one with a hundred."""
    even = pairs(10, 1.2)
    uneven = [NeighbourPair(pair.alone_ns[: 1 + 11 * n], pair.beside_ns, *_rest(pair)) for n, pair in enumerate(even)]
    row = neighbour_row("mps", "v", "compute", uneven, [])
    assert row.alone_ms is not None
    assert row.beside_ms is not None
    assert row.slowdown_percent.value == pytest.approx(100 * (row.beside_ms / row.alone_ms - 1))
    assert row.alone_ms == pytest.approx(np.concatenate([pair.alone_ns for pair in uneven]).mean() / 1e6)


def test_p99_needs_five_pairs_and_its_samples() -> None:
    """As in a duet: 662 requests on each side."""
    found = neighbour_row("mps", "v", "copies", pairs(8, 1.5), []).p99_slowdown_percent
    assert found is not None
    assert found.value == pytest.approx(50.0, abs=2.0)
    assert neighbour_row("mps", "v", "copies", pairs(4, 1.5, samples=200), []).p99_slowdown_percent is None
    assert neighbour_row("mps", "v", "copies", pairs(10, 1.5, samples=66), []).p99_slowdown_percent is None


def test_one_pair_has_a_value_and_no_interval() -> None:
    row = neighbour_row("mps", "v", "copies", pairs(1, 1.5), [])
    assert row.slowdown_percent.value == pytest.approx(50.0, abs=2.0)
    assert row.slowdown_percent.ci95 is None
    assert "--repeats" in row.warnings[0].text


def test_restarts_that_differ_widen_the_interval() -> None:
    calm = pairs(10, 1.2)
    moved = [
        NeighbourPair(pair.alone_ns, pair.beside_ns * (1 + 0.1 * (pair.restart % 2)), *_rest(pair)) for pair in calm
    ]
    row = neighbour_row("mps", "v", "compute", moved, [])
    assert any("differs from one restart" in warning.text for warning in row.warnings)
    low, high = row.slowdown_percent.ci95 or (None, None)
    assert low is not None
    assert high is not None
    assert high - low > 8.0


def _rest(pair: NeighbourPair) -> tuple[bool, float, int]:
    return pair.beside_first, pair.time_s, pair.restart


def test_without_evidence_there_is_no_number() -> None:
    notice = Notice("steal", "the hypervisor withheld 2 %", 2.0)
    row = neighbour_row("mps", "v", "compute", pairs(10, 1.2), [notice], reasons=["no MPS server"])
    assert row.valid is False
    assert row.slowdown_percent.value is None
    assert row.p99_slowdown_percent is None
    assert [warning.code for warning in row.warnings] == ["no-evidence", "steal"]
