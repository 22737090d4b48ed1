"""Stop between two steps instead of in the middle of one: the first signal asks for it, the second interrupts."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM)
Halted = Callable[[], bool]


@contextmanager
def orderly_stop(after: str) -> Iterator[Halted]:
    """Yield a function that returns whether to stop; `after` names the step that is finished first."""
    requested = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal requested
        if requested:
            raise KeyboardInterrupt
        requested = True
        # Not with print: the signal may arrive during one.
        name = signal.Signals(number).name
        os.write(2, f"\ngputax: {name}: stopping after {after}; press again to stop now and keep nothing\n".encode())

    # A shell's background job ignores SIGINT; keep it ignored.
    handled = [number for number in STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in handled}
    try:
        yield lambda: requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
