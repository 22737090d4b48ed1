"""A stop request that a signal handler may set and any thread can wait for."""

from __future__ import annotations

import contextlib
import os
import select


class Halt:
    """Stays set. A pipe instead of an Event: a signal handler that runs during a wait must not take a lock."""

    def __init__(self) -> None:
        self.ordered = False
        self._closed = False
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def order(self) -> None:
        """Request the stop; repeated calls have no effect."""
        self.ordered = True
        # A late signal must not write into whatever file has taken the number of a closed pipe.
        if not self._closed:
            with contextlib.suppress(BlockingIOError):
                os.write(self._write, b".")

    def wait(self, seconds: float) -> bool:
        """Wait up to this long for the request; returns whether it is set."""
        if seconds > 0 and not self.ordered:
            select.select([self._read], [], [], seconds)
        return self.ordered

    def fileno(self) -> int:
        """Return the descriptor that becomes readable with the request."""
        return self._read

    def close(self) -> None:
        """Close the pipe; a later order is only remembered."""
        self._closed = True
        os.close(self._read)
        os.close(self._write)
