"""The interface between a load and a protocol: requests that are started, and answers with their times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Answer:
    """One request that has ended, well or not."""

    row: int
    sent_ns: int
    end_ns: int
    status: int
    tokens: int = 0
    times_ns: Sequence[int] = ()
    """When each token or chunk with content was there."""
    detail: str = ""
    """What the server said, of a failure."""


class Exchange(Protocol):
    """Many requests in flight, by one thread."""

    def start(self, row: int, index: int) -> None:
        """Send the request of this index; its answer will carry the row."""
        ...

    def wait(self, until_ns: int) -> Sequence[Answer]:
        """Return what has ended; at this time of the performance counter nothing may have."""
        ...

    def close(self) -> None:
        """End all connections."""
        ...
