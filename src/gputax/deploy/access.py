"""What a deployment needs from the outside: programs to call and one cluster's API; a test plays either."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from gputax.deploy import processes
from gputax.deploy.plan import Command, Manifest
from gputax.deploy.processes import Finished
from gputax.errors import PreflightError

if TYPE_CHECKING:
    from gputax.kubernetes.client import Cluster


class ClusterAccess(Protocol):
    """The part of `client.Cluster` that a deployment uses."""

    def version(self) -> str:
        """Return the API server's version."""

    def apply(self, manifest: Manifest) -> Manifest:
        """Create or update one object."""

    def get(self, kind: str, name: str, *, namespace: str = "") -> Manifest | None:
        """Return one object, or None."""

    def list(
        self,
        kind: str,
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
        namespace: str = "",
    ) -> list[Manifest]:
        """Return the objects of a kind."""

    def delete(self, kind: str, name: str, *, namespace: str = "") -> bool:
        """Delete one object; False where it was gone."""

    def log(self, pod: str, *, tail_lines: int | None = None, namespace: str = "") -> str:
        """Return a pod's log."""

    def close(self) -> None:
        """Give the connections back."""


class Tools(Protocol):
    """Programs, the cluster, and time."""

    def call(self, command: Command, say: Callable[[str], None]) -> Finished:
        """Run a command that changes something."""

    def ask(self, command: Command) -> Finished:
        """Run a command that only reads."""

    def cluster(self) -> ClusterAccess:
        """Return the cluster's API."""

    def sleep(self, seconds: float) -> None:
        """Wait."""

    def seconds(self) -> float:
        """Return a clock that only goes forward."""


class RealTools:
    """The real ones; `kubeconfig` is the deployment's own file where it has one."""

    def __init__(
        self, kubeconfig: str = "", context: str = "", namespace: str = "default", expected_server: str = ""
    ) -> None:
        self._kubeconfig = kubeconfig
        self._expected_server = expected_server
        self._context = context
        self._namespace = namespace
        self._cluster: Cluster | None = None

    def call(self, command: Command, say: Callable[[str], None]) -> Finished:
        """Run a command that changes something."""
        return processes.call(command, say)

    def ask(self, command: Command) -> Finished:
        """Run a command that only reads."""
        return processes.ask(command)

    def cluster(self) -> Cluster:
        """Connect once, and to no other cluster than the one that the deployment went to."""
        if self._cluster is None:
            from gputax.kubernetes.client import Cluster

            if self._kubeconfig:
                os.environ["KUBECONFIG"] = self._kubeconfig
            found = Cluster(self._context, self._namespace)
            if self._expected_server and found.server != self._expected_server:
                raise PreflightError(
                    f"this deployment went to {self._expected_server}, but the context now leads to {found.server}",
                    where=f"context {self._context}",
                    next_step="export KUBECONFIG=FILE with the kubeconfig of that cluster",
                )
            self._cluster = found
        return self._cluster

    def close(self) -> None:
        """Give the connections back."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def seconds(self) -> float:
        """Return the monotonic clock."""
        return time.monotonic()
