"""The one seam: an environment starts a worker somewhere and gives back its pipes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import IO, Protocol, TypeAlias, runtime_checkable

from gputax.environments.described import Described
from gputax.environments.evidence import Evidence
from gputax.errors import GputaxError

Explain: TypeAlias = Callable[[int, str], GputaxError | None]
"""(exit code, last words on stderr) of a worker that ended: what its place knows of it, None where that is nothing."""


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


@runtime_checkable
class ExplainsItsEnd(Protocol):
    """A worker whose place knows more of its end than an exit code: a pod was deleted, a host key is missing."""

    def explain(self, code: int, words: str) -> GputaxError | None:
        """Return the error to raise instead of the general one."""
        ...


class Environment(Protocol):
    """Where a worker runs: a place plus layers."""

    name: str

    def start(self) -> WorkerProcess:
        """Start a worker there."""
        ...

    def evidence(self, described: Described) -> Evidence:
        """Return what proves that the place and its layers were active, from the worker's own description.

        It holds the worker's account of its driver when the evidence is taken after a measurement.
        """
        ...


class LocalEnvironment(Environment, Protocol):
    """An environment of this machine, in which any other program can run too."""

    note: str
    """What must be said aloud: a device that was chosen and not asked for; known inside of `surroundings`."""

    def surroundings(self) -> AbstractContextManager[dict[str, str]]:
        """Give the variables for a program; what was started for it ends with the context."""
        ...
