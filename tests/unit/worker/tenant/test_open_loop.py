"""Arrivals come by the schedule, and latency counts from there, whatever the engine does."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from gputax.errors import EngineError
from gputax.worker.loads.closed_loop import endless
from gputax.worker.samples import SampleArea
from gputax.worker.tenant.client import arrivals_ns, serve_arrivals

AREA = SampleArea({"none": np.zeros((4, 1), dtype=np.int8)}, 2)


class ClockedEngine:
    """Takes the programmed time on a clock of its own, so that every latency is known exactly."""

    def __init__(self, service_ns: Callable[[int], int]) -> None:
        self.now_ns, self.rows = 0, list[tuple[int, int]]()
        self._service_ns = service_ns

    def clock(self) -> int:
        return self.now_ns

    def run(self, first: int, count: int) -> None:
        self.rows.append((first, count))
        self.now_ns += self._service_ns(len(self.rows))

    def wait_until(self, scheduled_ns: int) -> bool:
        self.now_ns = max(self.now_ns, scheduled_ns)
        return True

    def until(self, end_ns: int) -> Callable[[int], bool]:
        def wait(scheduled_ns: int) -> bool:
            self.now_ns = max(self.now_ns, min(scheduled_ns, end_ns))
            return self.now_ns < end_ns

        return wait


def refused(error: Exception) -> None:
    raise AssertionError("no failure was expected") from error


def first_arrivals(rate_per_s: float, seed: tuple[int, ...], count: int) -> list[int]:
    return list(itertools.islice(arrivals_ns(rate_per_s, seed, 1_000), count))


def test_the_mean_rate_is_the_one_that_was_asked_for() -> None:
    times = np.array(first_arrivals(250.0, (7, 1), 20_000)) - 1_000
    assert 20_000 / (times[-1] / 1e9) == pytest.approx(250.0, rel=0.03)


def test_the_gaps_are_exponential() -> None:
    gaps = np.diff(first_arrivals(100.0, (3, 0), 20_000))
    assert gaps.min() >= 0
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.03)
    assert np.mean(gaps > 2 * gaps.mean()) == pytest.approx(np.exp(-2), abs=0.01)


def test_a_seed_gives_its_own_arrivals_again() -> None:
    assert first_arrivals(10.0, (7, 1), 3000) == first_arrivals(10.0, (7, 1), 3000)
    assert first_arrivals(10.0, (7, 1), 3) != first_arrivals(10.0, (7, 2), 3)


def test_a_stall_is_seen_by_every_request_that_queued_behind_it() -> None:
    # One request a second, a millisecond each, but the third run stalls for three seconds: a loop that counted from
    # the start of a run would show one slow request, and four were.
    second, service = 10**9, 10**6
    engine = ClockedEngine(lambda run: 3 * second if run == 3 else service)
    latencies: list[int] = []
    scheduled = iter([second, 2 * second, 3 * second, 4 * second, 5 * second, 6 * second, 9 * second])
    waiting = serve_arrivals(
        engine_of(engine), AREA, 1, scheduled, engine.wait_until, latencies.append, refused, engine.clock
    )
    expected = [service, service, 3 * second, 2 * second + service, second + 2 * service, 3 * service, service]
    assert latencies == expected
    assert waiting == 0


def test_arrivals_that_wait_at_the_end_are_told() -> None:
    engine = ClockedEngine(lambda _: 100)
    latencies: list[int] = []
    every_ten: Iterator[int] = iter(range(10, 10_000, 10))
    waiting = serve_arrivals(
        engine_of(engine), AREA, 1, every_ten, engine.until(1000), latencies.append, refused, engine.clock
    )
    assert len(latencies) == 10, "100 ns each, from 10 to 1010"
    assert waiting == 101 - 10, "those of 10, 20, … 1010 had come"


def test_who_stops_while_nobody_waits_leaves_nothing_unserved() -> None:
    engine = ClockedEngine(lambda _: 1)
    latencies: list[int] = []
    waiting = serve_arrivals(
        engine_of(engine), AREA, 1, iter([100, 5000]), engine.until(1000), latencies.append, refused, engine.clock
    )
    assert (latencies, waiting) == ([1], 0)


def test_samples_are_taken_in_turn() -> None:
    engine = ClockedEngine(lambda _: 1)
    serve_arrivals(engine_of(engine), AREA, 2, iter(range(5)), engine.wait_until, lambda _: None, refused, engine.clock)
    assert engine.rows == [(0, 2), (2, 2), (0, 2), (2, 2), (0, 2)]


def test_a_run_that_fails_is_told_and_has_no_latency() -> None:
    def service(run: int) -> int:
        if run == 2:
            raise EngineError("as programmed")
        return 1

    engine = ClockedEngine(service)
    latencies: list[int] = []
    failures: list[Exception] = []
    serve_arrivals(
        engine_of(engine),
        AREA,
        1,
        iter([10, 20, 30]),
        engine.wait_until,
        latencies.append,
        failures.append,
        engine.clock,
    )
    assert latencies == [1, 1]
    assert [str(failure) for failure in failures] == ["as programmed"]


def test_a_closed_loop_runs_while_it_may_and_tells_failures() -> None:
    def service(run: int) -> int:
        if run % 3 == 0:
            raise EngineError("each third")
        return run

    engine = ClockedEngine(service)
    latencies: list[int] = []
    failures: list[Exception] = []
    endless(engine_of(engine), AREA, 2, lambda: len(engine.rows) < 7, latencies.append, failures.append, engine.clock)
    assert latencies == [1, 2, 4, 5, 7]
    assert len(failures) == 2
    assert engine.rows[:3] == [(0, 2), (2, 2), (0, 2)]


def engine_of(engine: ClockedEngine) -> Any:
    return engine
