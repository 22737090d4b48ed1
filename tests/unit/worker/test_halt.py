"""A stop request takes effect at once, even from a signal handler during a wait."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from gputax.worker.halt import Halt


def test_it_waits_no_longer_than_it_was_told() -> None:
    halt = Halt()
    started = time.monotonic()
    assert not halt.wait(0.05)
    assert not halt.wait(-1.0)
    assert 0.04 < time.monotonic() - started < 5
    halt.close()


def test_an_order_of_another_thread_ends_the_wait_and_every_later_one() -> None:
    halt = Halt()
    timer = threading.Timer(0.1, halt.order)
    timer.start()
    started = time.monotonic()
    assert halt.wait(60)
    assert halt.wait(60)
    assert time.monotonic() - started < 10
    timer.join()
    halt.close()


def test_an_order_of_a_signal_handler_ends_the_wait_that_it_interrupts() -> None:
    halt = Halt()
    before = signal.signal(signal.SIGALRM, lambda *_: halt.order())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        started = time.monotonic()
        assert halt.wait(60)
        assert time.monotonic() - started < 10
    finally:
        signal.signal(signal.SIGALRM, before)
        halt.close()


def test_it_may_be_ordered_more_often_than_a_pipe_holds() -> None:
    halt = Halt()
    for _ in range(70_000):
        halt.order()
    assert halt.wait(0)
    halt.close()


def test_an_order_after_the_end_writes_nowhere(tmp_path: Path) -> None:
    halt = Halt()
    halt.close()
    with ExitStack() as files:  # one of them takes the number that the pipe had
        opened = [files.enter_context((tmp_path / str(number)).open("wb")) for number in range(4)]
        halt.order()
        assert halt.ordered
        assert {file.tell() for file in opened} == {0}
    assert {path.stat().st_size for path in tmp_path.iterdir()} == {0}
