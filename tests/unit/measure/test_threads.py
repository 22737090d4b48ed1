"""Tasks side by side: results in order, the first failure stops all, an interrupt too."""

from __future__ import annotations

import queue
import threading
import time

import pytest

from gputax.errors import WorkerError
from gputax.measure import session as share_threads
from gputax.measure.session import in_parallel


def test_results_come_in_the_order_of_the_tasks_whoever_ends_first() -> None:
    def task(number: int) -> int:
        time.sleep(0.03 * (3 - number))
        return number

    assert in_parallel([lambda number=number: task(number) for number in range(3)], lambda: None) == [0, 1, 2]  # type: ignore[misc]


def test_all_run_at_the_same_time() -> None:
    meeting = threading.Barrier(5, timeout=10)
    assert len(in_parallel([meeting.wait] * 5, lambda: None)) == 5


def test_the_first_failure_abandons_the_others_and_is_raised() -> None:
    abandoned = threading.Event()

    def failing() -> None:
        raise WorkerError("tenant died")

    def waiting() -> None:
        assert abandoned.wait(10)
        raise WorkerError("pipe closed")

    with pytest.raises(WorkerError, match="tenant died"):
        in_parallel([waiting, failing, waiting], abandoned.set)
    assert abandoned.is_set()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("tenant-")]


def test_an_interrupt_abandons_all(monkeypatch: pytest.MonkeyPatch) -> None:
    abandoned = threading.Event()

    class Interrupted:
        def put(self, item: object) -> None: ...

        def get(self) -> object:
            raise KeyboardInterrupt

    monkeypatch.setattr(queue, "SimpleQueue", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        in_parallel([lambda: abandoned.wait(10)], abandoned.set)
    assert abandoned.is_set()


def test_a_task_that_hangs_all_the_same_does_not_hold_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_threads, "LEAVE_S", 0.05)
    end = threading.Event()

    def failing() -> bool:
        raise WorkerError("tenant died")

    started = time.monotonic()
    with pytest.raises(WorkerError):
        in_parallel([lambda: end.wait(30), failing], lambda: None)
    assert time.monotonic() - started < 5
    end.set()
