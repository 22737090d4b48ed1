"""The external tools of a deployment: programs to call and one cluster's API; tests replace both."""

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
        """Delete one object; return False if it did not exist."""

    def log(self, pod: str, *, tail_lines: int | None = None, namespace: str = "") -> str:
        """Return a pod's log."""

    def close(self) -> None:
        """Close the connections."""


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
        """Return the time of a monotonic clock."""


class RealTools:
    """The real tools; `kubeconfig` is the deployment's own file, if it has one."""

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
        """Connect once; raise if the context points to another cluster than the deployment's."""
        if self._cluster is None:
            from gputax.kubernetes.client import Cluster

            if self._kubeconfig:
                os.environ["KUBECONFIG"] = self._kubeconfig
            found = Cluster(self._context, self._namespace)
            if self._expected_server and found.server != self._expected_server:
                raise PreflightError(
                    f"this deployment is on {self._expected_server}, but the context now points to {found.server}",
                    where=f"context {self._context}",
                    next_step="set KUBECONFIG to the kubeconfig of that cluster",
                )
            self._cluster = found
        return self._cluster

    def close(self) -> None:
        """Close the connections."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def seconds(self) -> float:
        """Return the monotonic clock."""
        return time.monotonic()
