"""Overlapping calls of one ONNX Runtime session, so that its device always has work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class SessionCalls:
    """Calls of one session by as many threads as there may be runs in flight; the first started is waited for first."""

    def __init__(self, session: Any, bound: Callable[[int, int], Any], depth: int) -> None:
        self._session, self._bound = session, bound
        self._pool = ThreadPoolExecutor(depth, thread_name_prefix="in-flight")
        self._runs: deque[Future[None]] = deque()

    def submit(self, first: int, count: int) -> None:
        """Hand the rows to a thread."""
        self._runs.append(self._pool.submit(self._run, self._bound(first, count)))

    def finish(self) -> None:
        """Wait for the oldest run."""
        self._runs.popleft().result()

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def _run(self, binding: Any) -> None:
        self._session.run_with_iobinding(binding)
        binding.synchronize_outputs()
