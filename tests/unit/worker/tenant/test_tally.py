"""A tally counts exactly, in bounds that a percentile can be read from."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest

from gputax.worker.tenant.tally import BOUNDS_NS, KEPT, Tally


def test_bounds_reach_from_an_operation_to_a_crowded_device_in_small_steps() -> None:
    assert BOUNDS_NS[0] <= 100_000
    assert BOUNDS_NS[-1] >= 60 * 10**9
    steps = [high / low for low, high in itertools.pairwise(BOUNDS_NS)]
    assert min(steps) > 1.2
    assert max(steps) < 1.3


def test_nothing_counted_is_zero_everywhere() -> None:
    counts = Tally().counts()
    assert (counts.runs, counts.inferences, counts.errors, counts.sum_ns, sum(counts.buckets)) == (0, 0, 0, 0, 0)


def test_sum_and_count_are_those_of_the_samples_to_the_nanosecond() -> None:
    latencies = np.random.default_rng(1).integers(1_000, 10**11, 5000).tolist()
    tally = Tally()
    for latency_ns in latencies:
        tally.done(latency_ns)
    counts = tally.counts()
    assert counts.sum_ns == sum(latencies)
    assert (counts.runs, counts.min_ns, counts.max_ns) == (5000, min(latencies), max(latencies))
    assert sum(counts.buckets) == 5000


@pytest.mark.parametrize(
    ("latency_ns", "bucket"),
    [(1, 0), (10_000, 0), (10_001, 1), (12_500, 1), (BOUNDS_NS[-1], -2), (BOUNDS_NS[-1] + 1, -1)],
)
def test_a_bound_belongs_to_its_bucket(latency_ns: int, bucket: int) -> None:
    tally = Tally()
    tally.done(latency_ns)
    assert tally.counts().buckets[bucket] == 1


def test_a_run_of_a_batch_is_so_many_inferences_and_one_time() -> None:
    tally = Tally(target_ns=1000)
    tally.done(1000, 8)
    tally.done(1001, 8)
    counts = tally.counts()
    assert (counts.runs, counts.inferences, counts.within_target) == (2, 16, 8)


def test_without_a_target_nothing_is_within_it() -> None:
    tally = Tally()
    tally.done(1)
    assert tally.counts().within_target == 0


def test_the_last_latencies_are_kept_and_no_more() -> None:
    tally = Tally()
    for latency_ns in range(1, 101):
        tally.done(latency_ns)
    assert sorted(tally.last_latencies_ns()) == list(range(1, 101))
    for latency_ns in range(101, KEPT + 201):
        tally.done(latency_ns)
    kept = tally.last_latencies_ns()
    assert len(kept) == KEPT
    assert (kept.min(), kept.max()) == (201, KEPT + 200)


def test_a_reader_never_sees_half_of_a_run() -> None:
    tally, stop = Tally(target_ns=10**9), threading.Event()

    def write() -> None:
        while not stop.is_set():
            tally.done(7_000_000, 3)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(2000):
            counts = tally.counts()
            assert counts.sum_ns == 7_000_000 * counts.runs
            assert sum(counts.buckets) == counts.runs
            assert counts.inferences == counts.within_target == 3 * counts.runs
    finally:
        stop.set()
        writer.join()
