"""How long each part of a whole took."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator


class Timings:
    """Seconds by part, in the order they ended."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Measure one part."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = time.monotonic() - began

    def line(self) -> str:
        """Return all parts in one line."""
        parts = ", ".join(f"{name} {seconds:.1f}" for name, seconds in self.seconds.items())
        return f"{sum(self.seconds.values()):.1f} s ({parts})"
