"""The device plugin's view of its node: follow the labels by a watch, read the chosen configuration, set labels."""

from __future__ import annotations

import contextlib
import threading

from e2e.api import Api, ApiError
from e2e.layout import NODE_NAME

NODE = f"/api/v1/nodes/{NODE_NAME}"
WATCH = f"/api/v1/nodes?fieldSelector=metadata.name%3D{NODE_NAME}"
AGAIN_S = 1.0


class NodeFollower:
    """Knows the node's labels without asking for them again and again."""

    def __init__(self, api: Api, config_map: str, ended: threading.Event, changed: threading.Event) -> None:
        self._api, self._ended, self._changed = api, ended, changed
        namespace, _, name = config_map.partition("/")
        self._config_map = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
        self._labels: dict[str, str] | None = None
        threading.Thread(target=self._follow, name="node-watch", daemon=True).start()

    def label(self, name: str) -> str:
        """Return a label of the node; empty where it has none."""
        return (self._labels or {}).get(name, "")

    @property
    def known(self) -> bool:
        """Whether the node has been seen yet."""
        return self._labels is not None

    def configuration(self, key: str) -> str | None:
        """Return one file of the ConfigMap as it is now; None where it is not there (yet) or cannot be read."""
        try:
            data: dict[str, str] = self._api.get(self._config_map).get("data") or {}
        except OSError as error:
            if not (isinstance(error, ApiError) and error.status == 404):
                print(f"{self._config_map}: {error}", flush=True)
            return None
        return data.get(key)

    def set(self, labels: dict[str, str | None]) -> bool:
        """Set labels of the node, and remove those that are None; say whether it was done."""
        try:
            if labels:
                self._api.patch(NODE, {"metadata": {"labels": labels}})
        except OSError as error:
            print(f"labels not set: {error}", flush=True)
            return False
        return True

    def _follow(self) -> None:
        while not self._ended.is_set():
            # The API server may be stopped in the middle of a test: the next watch begins with the node as it is.
            with contextlib.suppress(OSError, ValueError):
                for event in self._api.watch(WATCH):
                    if event.get("type") in ("ADDED", "MODIFIED"):
                        labels = event["object"]["metadata"].get("labels") or {}
                        if labels != self._labels:
                            self._labels = labels
                            self._changed.set()
                    if self._ended.is_set():
                        return
            self._ended.wait(AGAIN_S)
