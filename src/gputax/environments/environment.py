"""The one seam: an environment starts a worker somewhere and gives back its pipes."""

from __future__ import annotations

from typing import IO, Any, Protocol


class WorkerProcess(Protocol):
    """A started worker, as `subprocess.Popen` or anything of its shape."""

    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None
    pid: int

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        ...


class Environment(Protocol):
    """Where a worker runs: a place plus layers."""

    name: str

    def start(self) -> WorkerProcess:
        """Start a worker there."""
        ...

    def evidence(self, described: dict[str, Any]) -> dict[str, Any]:
        """Return what proves that the place and its layers were active, from the worker's own description."""
        ...
