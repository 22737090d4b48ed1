"""A timer that an epoll can wait for: `epoll.poll` itself counts in milliseconds, arrivals do not."""

from __future__ import annotations

import ctypes
import os

CLOCK_MONOTONIC = 1
TFD_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC
ABSOLUTE = 1
NS = 1_000_000_000


class _Times(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


class Timer:
    """Becomes readable at a time of the performance counter, which is the monotonic clock on Linux."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        self._set = library.timerfd_settime
        self._times = _Times()
        self._address = ctypes.byref(self._times)
        self.descriptor = library.timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK_CLOEXEC)
        if self.descriptor < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def set(self, at_ns: int) -> None:
        """Ring at this time; a time that has passed rings at once."""
        self._times.value_s, self._times.value_ns = divmod(max(at_ns, 1), NS)
        self._set(self.descriptor, ABSOLUTE, self._address, None)

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.descriptor)
