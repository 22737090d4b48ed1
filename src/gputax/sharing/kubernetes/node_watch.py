"""One watch on one node: its current state, and waiting for a wanted state."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from gputax.errors import PreflightError
from gputax.kubernetes.client import Cluster
from gputax.kubernetes.nodes import NodeFacts, node_facts
from gputax.kubernetes.watch import Say

FIRST_NEWS_S = 30.0


class NodeWatch:
    """Follows a node in one thread and one request, which ends with the client's connections."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = name
        self._cluster = cluster
        self._changed = threading.Condition()
        self._seen: list[NodeFacts] = []
        """All states of the node: a short one, such as `pending`, must not be missed."""
        self._failure: BaseException | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._follow, name="node-watch", daemon=True)
        self._thread.start()

    def current(self) -> NodeFacts:
        """Return the node as last reported by the API server."""
        self.position()
        return self._seen[-1]

    def position(self) -> int:
        """Return the number of states seen so far, from which `wait_for` can then check all later ones."""
        with self._changed:
            self._changed.wait_for(lambda: self._seen or self._failure, FIRST_NEWS_S)
            if self._failure is not None:
                raise self._failure
            if not self._seen:
                raise PreflightError(f"the watch reports nothing about node {self.name}", next_step="kubectl get nodes")
            return len(self._seen)

    def wait_for(self, missing: Callable[[NodeFacts], str], since: int, timeout_s: float, say: Say) -> str:
        """Wait until nothing is missing, for at most `timeout_s`; return what is still missing.

        `missing` checks the state at `since` and every later one, and may raise to give up.
        """
        deadline = time.monotonic() + timeout_s
        looked_at, said = since - 1, ""
        while True:
            fresh = self._after(looked_at, deadline - time.monotonic())
            if not fresh:
                return said
            for node in fresh:
                words = missing(node)
                if not words:
                    return ""
                if words != said:
                    say(f"node {self.name}: {words}")
                    said = words
            looked_at += len(fresh)

    def _after(self, position: int, timeout_s: float) -> list[NodeFacts]:
        with self._changed:
            self._changed.wait_for(lambda: len(self._seen) > position or self._failure, max(0.0, timeout_s))
            if self._failure is not None:
                raise self._failure
            return self._seen[position:]

    def close(self) -> None:
        """Stop following."""
        self._closed = True

    def _follow(self) -> None:
        try:
            for event, node in self._cluster.watch("Node", labels={}, fields={"metadata.name": self.name}):
                if self._closed:
                    return
                if event == "DELETED":
                    raise PreflightError(
                        f"node {self.name} was removed from the cluster", next_step="kubectl get nodes"
                    )
                with self._changed:
                    self._seen.append(node_facts(node))
                    self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()
