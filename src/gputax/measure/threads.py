"""Run the same task for all tenants at once, and stop all of them if one fails or the user interrupts."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
# Once the processes have ended, their threads see closed pipes and need no longer than this.
LEAVE_S = 15.0


def in_parallel(tasks: Sequence[Callable[[], T]], abandon: Callable[[], None]) -> list[T]:
    """Run each task in a thread of its own and return the results in their order.

    The first failure, or an interrupt, calls `abandon`, which makes the other tasks end; then it is raised. Threads are
    daemons: a thread that still hangs does not keep the program from exiting.
    """
    ended: queue.SimpleQueue[tuple[int, T | None, BaseException | None]] = queue.SimpleQueue()

    def run(number: int, task: Callable[[], T]) -> None:
        try:
            ended.put((number, task(), None))
        except BaseException as error:  # an error in a thread would be printed and lost
            ended.put((number, None, error))

    threads = [
        threading.Thread(target=run, args=(number, task), name=f"tenant-{number + 1}", daemon=True)
        for number, task in enumerate(tasks)
    ]
    results: dict[int, T] = {}
    try:
        for thread in threads:
            thread.start()
        while len(results) < len(threads):
            number, result, error = ended.get()
            if error is not None:
                raise error
            results[number] = result  # type: ignore[assignment]  # without an error it is a T
    except BaseException:
        abandon()
        _join([thread for thread in threads if thread.ident is not None])
        raise
    return [results[number] for number in range(len(threads))]


def _join(threads: Sequence[threading.Thread]) -> None:
    deadline = time.monotonic() + LEAVE_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
