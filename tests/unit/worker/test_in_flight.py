"""Runs in flight: as many as asked for are started before the first is waited for, and all of them are recorded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gputax.errors import EngineError, UsageError
from gputax.plan.cells import Load
from gputax.stats.shared import TenantRuns, common_window, served
from gputax.worker.engines.engine import EngineRequest
from gputax.worker.engines.synthetic import SyntheticEngine
from gputax.worker.loads.closed_loop import recording_for, saturate
from gputax.worker.samples import SampleArea


class Flight:
    """What a device sees: which runs were handed to it, and how many were waiting at most."""

    def __init__(self, depth: int, fail_at: int = 0) -> None:
        self.depth, self.fail_at = depth, fail_at
        self.waiting = self.most = self.finished = 0
        self.firsts: list[int] = []
        self.closed = False

    def submit(self, first: int, count: int) -> None:
        self.firsts.append(first)
        self.waiting += 1
        self.most = max(self.most, self.waiting)

    def finish(self) -> None:
        self.waiting -= 1
        self.finished += 1
        if self.finished == self.fail_at:
            raise EngineError("the device is gone")

    def close(self) -> None:
        self.closed = True


class Overlapping(SyntheticEngine):
    """An engine whose flight can be looked at."""

    fail_at = 0

    def in_flight(self, depth: int) -> Any:
        self.flight = Flight(depth, self.fail_at)
        return self.flight


def engine(kind: type[SyntheticEngine] = Overlapping, latency_us: float = 0.0) -> Any:
    options = {"latency_us": latency_us, "per_sample_us": 0.0, "jitter_us": 0.0, "seed": 7} | dict.fromkeys(
        ("fail_after", "hang_after"), 0
    )
    return kind(EngineRequest("resnet50", options, "cpu", "fp32", 1, 2))


def area(samples: int) -> SampleArea:
    return SampleArea({"x": np.zeros((samples, 1), dtype=np.float32)}, 1)


def test_the_device_always_has_as_many_runs_as_were_asked_for() -> None:
    running, load = engine(), Load("saturate", min_queries=10, in_flight=4)
    recording = recording_for(load)
    saturate(running, area(4), load, recording)
    flight = running.flight
    assert (flight.depth, flight.most, flight.waiting, flight.closed) == (4, 4, 0, True)
    assert recording.count == flight.finished == 13  # those in flight at the end are waited for and count
    columns = recording.to_columns()
    assert (columns["end_ns"] >= columns["start_ns"]).all()
    assert (np.diff(columns["end_ns"]) >= 0).all()


def test_a_run_that_fails_ends_the_load_and_releases_the_rest() -> None:
    running = engine()
    running.fail_at = 3
    load = Load("saturate", min_queries=10, in_flight=2)
    with pytest.raises(EngineError):
        saturate(running, area(4), load, recording_for(load))
    assert running.flight.closed


def test_an_engine_that_waits_for_each_run_is_refused() -> None:
    class Waiting:
        device = "cpu"

    load = Load("saturate", in_flight=2)
    waiting: Any = Waiting()
    with pytest.raises(UsageError, match="cannot keep several in flight"):
        saturate(waiting, area(1), load, recording_for(load))


def test_a_synthetic_device_works_on_one_run_after_the_other() -> None:
    runs = engine(SyntheticEngine, latency_us=200.0).in_flight(3)
    for _ in range(3):
        runs.submit(0, 1)
    ends = list(runs._ends)
    assert np.diff(ends).tolist() == [200_000, 200_000]


def test_the_rate_of_overlapping_runs_counts_what_was_completed() -> None:
    ends = np.arange(1, 101, dtype=np.int64) * 1_000_000
    for depth in (1, 4, 16):
        starts = np.maximum(0, ends - depth * 1_000_000)
        runs = TenantRuns(starts, ends, np.ones(100, np.int64))
        found = served(runs, common_window([runs], 0, 0.0))
        assert found.throughput_per_s == pytest.approx(1000.0)
        assert found.mean_ms <= depth
