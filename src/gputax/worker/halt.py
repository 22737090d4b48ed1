"""One order to stop, that a signal handler may give and any thread can wait for."""

from __future__ import annotations

import contextlib
import os
import select


class Halt:
    """Stays ordered once it is. A pipe and not an Event: a handler that comes in the middle of a wait must not lock."""

    def __init__(self) -> None:
        self.ordered = False
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def order(self) -> None:
        """Order it; again changes nothing."""
        self.ordered = True
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b".")

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until it is ordered; returns whether it is."""
        if seconds > 0 and not self.ordered:
            select.select([self._read], [], [], seconds)
        return self.ordered

    def fileno(self) -> int:
        """Return the descriptor that is readable from the order on."""
        return self._read

    def close(self) -> None:
        """Give the pipe back."""
        os.close(self._read)
        os.close(self._write)
