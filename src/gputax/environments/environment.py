"""The protocol of environments: start a worker somewhere and return its pipes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import IO, Protocol, TypeAlias, runtime_checkable

from gputax.environments.described import Described
from gputax.environments.evidence import Evidence
from gputax.errors import GputaxError

Explain: TypeAlias = Callable[[int, str], GputaxError | None]
"""Maps the exit code and last stderr output of a worker to an error; None if the environment knows no reason."""


class WorkerProcess(Protocol):
    """A started worker: `subprocess.Popen` or an object with the same interface."""

    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None
    pid: int

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        ...

    def kill(self) -> None:
        """Kill it."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it exits."""
        ...


@runtime_checkable
class ExplainsItsEnd(Protocol):
    """A worker whose environment can explain why it exited: a pod was deleted, a host key is missing."""

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
        """Return the evidence that the place and its layers were active, based on the worker's description.

        After a measurement the description includes the worker's report on its driver.
        """
        ...


class LocalEnvironment(Environment, Protocol):
    """A local environment, in which any other program can run too."""

    note: str
    """A warning to print when the device was chosen automatically; set within `surroundings`."""

    def surroundings(self) -> AbstractContextManager[dict[str, str]]:
        """Yield the environment variables for a program; processes started for it end with the context."""
        ...
