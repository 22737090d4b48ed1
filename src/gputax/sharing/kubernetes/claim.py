"""Change a node's labels for an experiment; the previous labels are kept in an annotation and restored.

A killed run cannot restore anything. The next run finds the annotation, sees that its owner is gone, and restores the
original labels.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass

from gputax.errors import PreflightError
from gputax.kubernetes.client import Cluster, ConflictError, ForbiddenError
from gputax.kubernetes.nodes import NodeFacts, node_facts
from gputax.kubernetes.objects import Manifest

BEFORE = "gputax.dev/sharing-before"
OWNER = "gputax.dev/sharing-owner"
# The kubelet updates its node too, so retry on a conflict.
TRIES = 5
ACCESS = "kubectl apply -k kubernetes/access-sharing grants the permission to label nodes"


@dataclass(frozen=True)
class Owner:
    """The run that has claimed a node."""

    host: str
    pid: int
    run_id: str

    def __str__(self) -> str:
        return f"{self.host}/{self.pid}/{self.run_id}"

    @staticmethod
    def parse(text: str) -> Owner | None:
        """Parse an owner annotation; None if the format is unknown."""
        host, _, rest = text.rpartition("/")[0].rpartition("/")
        return Owner(host, int(rest), text.rpartition("/")[2]) if rest.isdigit() else None

    @property
    def gone(self) -> bool:
        """Whether that process has certainly ended; known only for processes of this machine."""
        if self.host != platform.node():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        return False


class NodeClaim:
    """One node's labels, changed for an experiment and restored at its end."""

    def __init__(self, cluster: Cluster, run_id: str) -> None:
        self._cluster = cluster
        self.owner = Owner(platform.node(), os.getpid(), run_id)
        self.node = ""
        self.before: dict[str, str | None] = {}
        """The previous value of every changed label; None if it was not set."""

    @property
    def held(self) -> bool:
        """Whether there is something to restore."""
        return bool(self.node)

    def left_by_a_killed_run(self, node: NodeFacts) -> Owner | None:
        """Return the killed run that had claimed the node; raise if another run may still use it."""
        text = node.annotations.get(OWNER)
        if not text or text == str(self.owner):
            return None
        owner = Owner.parse(text)
        if owner is not None and owner.gone:
            return owner
        raise PreflightError(
            f"another experiment is using the node: {text} (host, process, run)",
            where=f"node {node.name}",
            next_step="wait until it ends; if it no longer exists: "
            + self._cluster.kubectl("annotate", "node", node.name, f"{OWNER}-", namespaced=False),
        )

    def adopt(self, node: NodeFacts) -> None:
        """Take over the node of a killed run: keep its record of the previous labels, and change no labels."""
        self._write(node.name, {})

    def take(self, node: NodeFacts, labels: Mapping[str, str | None]) -> NodeFacts:
        """Set the labels, and store the previous ones in an annotation in the same patch."""
        return self._write(node.name, labels)

    def _write(self, name: str, labels: Mapping[str, str | None]) -> NodeFacts:
        for last in range(1, TRIES + 1):
            live = self._cluster.get("Node", name)
            if live is None:
                raise PreflightError(f"node {name} does not exist", next_step="kubectl get nodes")
            facts = node_facts(live)
            self.left_by_a_killed_run(facts)
            before = {**former_labels(facts), **self.before}
            for label in labels:
                before.setdefault(label, facts.labels.get(label))
            # Stored before the request, so that an interrupt right after it can still restore the labels.
            self.node, self.before = name, before
            annotations = {BEFORE: json.dumps(before, sort_keys=True), OWNER: str(self.owner)}
            try:
                return node_facts(self._patch(labels, annotations, live["metadata"].get("resourceVersion")))
            except ConflictError:
                if last == TRIES:
                    raise
        raise AssertionError

    def release(self) -> None:
        """Restore the previous labels and remove the annotations; safe to call twice."""
        if self.held:
            self._patch(self.before, {BEFORE: None, OWNER: None}, None)
            self.node, self.before = "", {}

    def command(self) -> str:
        """Return the command that restores the labels by hand."""
        words = [f"{name}={value}" if value is not None else f"{name}-" for name, value in self.before.items()]
        return self._cluster.kubectl("label", "node", self.node, "--overwrite", *words, namespaced=False)

    def _patch(
        self, labels: Mapping[str, str | None], annotations: Mapping[str, str | None], version: str | None
    ) -> Manifest:
        metadata: Manifest = {"labels": dict(labels), "annotations": dict(annotations)}
        if version:
            metadata["resourceVersion"] = version
        try:
            return self._cluster.patch("Node", self.node, {"metadata": metadata})
        except ForbiddenError as error:
            raise PreflightError(error.what, where=error.where, next_step=ACCESS) from error


def former_labels(node: NodeFacts) -> dict[str, str | None]:
    """Return the previous labels stored by an earlier run; empty if there are none or they cannot be parsed."""
    try:
        noted = json.loads(node.annotations.get(BEFORE, "{}"))
    except ValueError:
        return {}
    return {str(name): value for name, value in noted.items()} if isinstance(noted, dict) else {}
