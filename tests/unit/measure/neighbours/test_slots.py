"""Which runs of a victim count, and how slots become pairs."""

from __future__ import annotations

import numpy as np
import pytest

from gputax.measure.neighbours.slots import (
    VictimSlot,
    counted_slot,
    no_run_counts,
    pairs_of,
    sample_columns,
    slot_order,
)

MS = 1_000_000


def runs(count: int, each_ms: float, from_ms: float = 0.0) -> dict[str, np.ndarray]:
    start = (np.arange(count) * each_ms + from_ms) * MS
    return {"start_ns": start.astype(np.int64), "end_ns": (start + each_ms * MS).astype(np.int64)}


def slot(restart: int, number: int, each_ms: float, *, beside: bool) -> VictimSlot:
    span_ns = (0, 1 << 62) if beside else None
    return counted_slot(restart, number, runs(10, each_ms, 1000.0 * number), each_ms * MS, span_ns)


def test_the_order_balances_a_drift_within_each_restart_and_mirrors_every_second_one() -> None:
    for restart in (1, 2):
        places = [number if beside else -number for number, beside in enumerate(slot_order(restart))]
        assert sum(places) == 0, "slots alone and beside lie equally late on average"
    assert [not beside for beside in slot_order(1)] == list(slot_order(2))


def test_the_first_run_is_dropped_and_a_millisecond_of_short_ones() -> None:
    assert slot(1, 0, 10.0, beside=False).counted.tolist() == [False] + 9 * [True]
    assert counted_slot(1, 0, runs(30, 0.1), 0.1 * MS, None).counted.sum() == 20


def test_only_runs_wholly_beside_a_working_neighbour_count() -> None:
    columns = runs(10, 10.0)
    # The neighbour works from 15 ms to 75 ms: the run from 10 ms began before it, that from 70 ms ended after it.
    marked = counted_slot(1, 1, columns, 10.0 * MS, (15 * MS, 75 * MS))
    assert np.flatnonzero(marked.counted).tolist() == [2, 3, 4, 5, 6]
    assert marked.beside
    nothing = counted_slot(1, 1, columns, 10.0 * MS, (15 * MS, 16 * MS))
    assert not nothing.counted.any()
    assert "--window 4s" in no_run_counts(nothing, 2.0).next_step


def test_neighbouring_slots_are_pairs_whichever_came_first() -> None:
    slots = [
        slot(restart, number, 20.0 if beside else 10.0, beside=beside)
        for restart in (1, 2)
        for number, beside in enumerate(slot_order(restart))
    ]
    pairs = pairs_of(slots)
    assert [(pair.restart, pair.beside_first) for pair in pairs] == [(1, False), (1, True), (2, True), (2, False)]
    assert all(pair.beside_ns.mean() == pytest.approx(2 * pair.alone_ns.mean()) for pair in pairs)
    assert len(pairs_of(slots[:3])) == 1, "half a pair is none"


def test_every_run_is_kept_also_those_that_do_not_count() -> None:
    columns = sample_columns([slot(1, 0, 10.0, beside=False), slot(1, 1, 20.0, beside=True)])
    assert {len(values) for values in columns.values()} == {20}
    assert columns["counted"].sum() == 18
    assert columns["beside"].sum() == 10
    assert all(values.size == 0 for values in sample_columns([]).values())
