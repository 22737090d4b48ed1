"""The two sides of a ratio: a bare loop in its own process, and a gputax worker."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gputax.measure.session import WorkerSession
from gputax.measure.view import SilentView
from gputax.places import environment_named
from gputax.plan.cells import Setup


class BareLoop:
    """A `bench.bare_loop` process that runs when asked and is idle otherwise."""

    def __init__(self, kind: str, *arguments: int) -> None:
        words = [sys.executable, "-m", "bench.bare_loop", kind, *map(str, arguments)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._receive()

    def run(self, seconds: float, dropped_runs: int = 1) -> dict[str, float]:
        """Loop for so long, after a few runs that do not count."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"seconds": seconds, "dropped_runs": dropped_runs}) + "\n")
        self._process.stdin.flush()
        return self._receive()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


def worker(engine: str, max_batch: int = 32) -> WorkerSession:
    """Start a worker as `gputax run` does."""
    return WorkerSession(environment_named("bare"), Setup("resnet50", engine=engine, max_batch=max_batch), SilentView())


@contextmanager
def sides(session: WorkerSession, bare: BareLoop) -> Iterator[tuple[WorkerSession, BareLoop]]:
    """Give both sides and end both processes afterwards."""
    try:
        yield session, bare
    finally:
        session.end()
        bare.close()
