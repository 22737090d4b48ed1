"""The labels of a node while an experiment has it: what they were is kept on the node itself, and put back.

A run that is killed cannot put anything back. The next one finds the annotation, sees that its writer is gone, and
goes on from the labels of before.
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
# The kubelet writes its node too: a change in between is no reason to give up.
TRIES = 5
ACCESS = "kubectl apply -k kubernetes/access-sharing gives the right to label nodes"


@dataclass(frozen=True)
class Owner:
    """The run that has a node."""

    host: str
    pid: int
    run_id: str

    def __str__(self) -> str:
        return f"{self.host}/{self.pid}/{self.run_id}"

    @staticmethod
    def parse(text: str) -> Owner | None:
        """Read what another run wrote; None where it is not ours to read."""
        host, _, rest = text.rpartition("/")[0].rpartition("/")
        return Owner(host, int(rest), text.rpartition("/")[2]) if rest.isdigit() else None

    @property
    def gone(self) -> bool:
        """Whether that process has surely ended: only this machine's own can be asked."""
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
    """One node's labels, changed for an experiment and put back at its end."""

    def __init__(self, cluster: Cluster, run_id: str) -> None:
        self._cluster = cluster
        self.owner = Owner(platform.node(), os.getpid(), run_id)
        self.node = ""
        self.before: dict[str, str | None] = {}
        """The former value of every label that was changed; None: it was not there."""

    @property
    def held(self) -> bool:
        """Whether there is something to put back."""
        return bool(self.node)

    def left_by_a_killed_run(self, node: NodeFacts) -> Owner | None:
        """Return the run that had the node and is gone; refuse a node that another run may still have."""
        text = node.annotations.get(OWNER)
        if not text or text == str(self.owner):
            return None
        owner = Owner.parse(text)
        if owner is not None and owner.gone:
            return owner
        raise PreflightError(
            f"another experiment has the node: {text} (host, process, run)",
            where=f"node {node.name}",
            next_step="wait for its end; if it is gone for good: "
            + self._cluster.kubectl("annotate", "node", node.name, f"{OWNER}-", namespaced=False),
        )

    def adopt(self, node: NodeFacts) -> None:
        """Take over a node whose run was killed: its note of the former labels becomes ours, the labels stay."""
        self._write(node.name, {})

    def take(self, node: NodeFacts, labels: Mapping[str, str | None]) -> NodeFacts:
        """Set the labels, with the former ones kept in an annotation that is written together with them."""
        return self._write(node.name, labels)

    def _write(self, name: str, labels: Mapping[str, str | None]) -> NodeFacts:
        for last in range(1, TRIES + 1):
            live = self._cluster.get("Node", name)
            if live is None:
                raise PreflightError(f"there is no node {name}", next_step="kubectl get nodes")
            facts = node_facts(live)
            self.left_by_a_killed_run(facts)
            before = {**former_labels(facts), **self.before}
            for label in labels:
                before.setdefault(label, facts.labels.get(label))
            # Remembered before it is sent: an interrupt right after it must find what to put back.
            self.node, self.before = name, before
            annotations = {BEFORE: json.dumps(before, sort_keys=True), OWNER: str(self.owner)}
            try:
                return node_facts(self._patch(labels, annotations, live["metadata"].get("resourceVersion")))
            except ConflictError:
                if last == TRIES:
                    raise
        raise AssertionError

    def release(self) -> None:
        """Put the former labels back and take the annotations away; may be called twice."""
        if self.held:
            self._patch(self.before, {BEFORE: None, OWNER: None}, None)
            self.node, self.before = "", {}

    def command(self) -> str:
        """Return what a person would type to put the labels back."""
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
    """Return the labels that a run before us noted; nothing where there was none or its note cannot be read."""
    try:
        noted = json.loads(node.annotations.get(BEFORE, "{}"))
    except ValueError:
        return {}
    return {str(name): value for name, value in noted.items()} if isinstance(noted, dict) else {}
