"""A GPU node of the stand-in API server, with what follows its labels there: device plugin, discovery, MIG manager."""

from __future__ import annotations

import threading
from typing import Any

import yaml

from tests.standins.kube_api import KubeApi

NODE = "gpu-1"
FOLLOWED = ("nvidia.com/device-plugin.config", "nvidia.com/mig.config")
CONFIG_MAP = "/api/v1/namespaces/nvidia-device-plugin/configmaps/nvidia-plugin-configs"


class GpuNode:
    """Reacts to the node's labels as NVIDIA's parts do; `fault` makes it misbehave.

    `never`: nothing happens. `labels-only`: the labels say that it is on, but nothing is offered. `mig-fails`.
    """

    def __init__(self, api: KubeApi, fault: str = "", labels: dict[str, str] | None = None) -> None:
        self.api, self.fault = api, fault
        self.path = f"/api/v1/nodes/{NODE}"
        found = {
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.memory": "81920",
            "nvidia.com/gpu.count": "1",
            "nvidia.com/gpu.sharing-strategy": "none",
            "nvidia.com/gpu.replicas": "1",
            "nvidia.com/mig.strategy": "mixed",
            **(labels or {}),
        }
        api.add_node(NODE, 1, found)
        api.objects[self.path]["status"]["allocatable"]["memory"] = "64Gi"
        api.on_change = self.changed
        self._told: dict[str, str | None] = {name: found.get(name) for name in FOLLOWED}
        self._lock = threading.RLock()

    @property
    def labels(self) -> dict[str, str]:
        """The node's labels now."""
        return dict(self.api.objects[self.path]["metadata"]["labels"])

    @property
    def annotations(self) -> dict[str, str]:
        """The node's annotations now."""
        return dict(self.api.objects[self.path]["metadata"].get("annotations") or {})

    def changed(self, path: str, live: dict[str, Any]) -> None:
        """See a write of the API server."""
        if path != self.path or self.fault == "never":
            return
        with self._lock:
            labels = live["metadata"]["labels"]
            wanted = {name: labels.get(name) for name in FOLLOWED}
            if wanted == self._told:
                return
            former, self._told = self._told, wanted
            if wanted["nvidia.com/mig.config"] != former.get("nvidia.com/mig.config"):
                self._mig(wanted["nvidia.com/mig.config"])
            if wanted["nvidia.com/device-plugin.config"] != former.get("nvidia.com/device-plugin.config"):
                self._plugin(wanted["nvidia.com/device-plugin.config"])

    def set(self, labels: dict[str, str | None], allocatable: dict[str, str | None]) -> None:
        """Show something else."""
        self.api.merge(self.path, {"metadata": {"labels": labels}, "status": {"allocatable": allocatable}})

    def _plugin(self, key: str | None) -> None:
        document: dict[str, Any] = {}
        if key is not None:
            files = self.api.objects.get(CONFIG_MAP, {}).get("data", {})
            if key not in files:
                return  # NVIDIA's plugin goes on with what it has
            document = yaml.safe_load(files[key])
        sharing = document.get("sharing") or {}
        strategy = "mps" if "mps" in sharing else "time-slicing" if "timeSlicing" in sharing else "none"
        section = sharing.get("mps") or sharing.get("timeSlicing") or {}
        replicas = str((section.get("resources") or [{"replicas": 1}])[0]["replicas"])
        shared = strategy != "none" and self.fault != "labels-only"
        self.set(
            {"nvidia.com/gpu.sharing-strategy": strategy, "nvidia.com/gpu.replicas": replicas},
            {
                "nvidia.com/gpu": None if shared else "1",
                "nvidia.com/gpu.shared": replicas if shared else None,
            },
        )

    def _mig(self, config: str | None) -> None:
        if config is None:
            return
        self.set({"nvidia.com/mig.config.state": "pending"}, {"nvidia.com/gpu": None})
        if self.fault == "mig-fails":
            self.set({"nvidia.com/mig.config.state": "failed"}, {})
            return
        profile = config.removeprefix("all-")
        sliced = profile != "disabled"
        gone: dict[str, str | None] = {
            name: None
            for name in self.api.objects[self.path]["status"]["allocatable"]
            if name.startswith("nvidia.com/mig-")
        }
        offered: dict[str, str | None] = {f"nvidia.com/mig-{profile}": "7"} if sliced else {"nvidia.com/gpu": "1"}
        self.set({"nvidia.com/mig.config.state": "success"}, {**gone, **offered})
