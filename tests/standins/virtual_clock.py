"""A clock that passes without waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from gputax.kubernetes.watch import Clock


class VirtualClock(Clock):
    """Time passes only where somebody sleeps or waits in vain."""

    def __init__(self, patience_s: float = 0.0) -> None:
        """`patience_s` is how long another thread really has to bring the news before the time counts as passed."""
        self.time_s, self.slept_s, self._patience_s = 0.0, list[float](), patience_s

    def now_s(self) -> float:
        return self.time_s

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.time_s += seconds
        time.sleep(0)

    def wait_for(self, changed: threading.Condition, answer: Callable[[], object], seconds: float) -> None:
        if not changed.wait_for(answer, min(seconds, self._patience_s)):
            self.time_s += max(0.0, seconds)
