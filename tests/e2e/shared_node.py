"""A node whose one stand-in GPU is shared: how a test switches it, breaks it, and sees that it is as it was."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.layout import NODE_NAME, REPOSITORY
from tests.e2e.real_cluster import RealCluster, eventually

PLUGIN_NAMESPACE = "gpu-operator"
PLUGIN_CONFIG = f"{PLUGIN_NAMESPACE}/gputax-sharing"
CONFIG_LABEL = "nvidia.com/device-plugin.config"
SLEEPS = {"workload": "resnet50", "engine": "synthetic:latency_us=20000,jitter_us=2000"}
"""Tenants that only wait, but not always the same time: seven of them fit on two cores."""
DRIVER = {"workload": "micro:operation", "device": "software"}
"""Tenants that see a device, with its memory."""


@dataclass(frozen=True)
class NodeState:
    """What an experiment may change of a node, and must put back."""

    labels: dict[str, str]
    annotations: dict[str, str]
    gpus: dict[str, str]
    """What it offers; a resource of which there is nothing left does not count."""


@dataclass(frozen=True)
class SharedNode:
    """The node, with what a test needs to share its GPU."""

    cluster: RealCluster
    prometheus: str
    before: NodeState
    gpus: int = 1

    def state(self) -> NodeState:
        """Return how the node is now."""
        return state_of(self.cluster)

    def turn(self, *words: str) -> None:
        """Let the plugin misbehave; without words it is honest."""
        write_whole(self.cluster.own.plugin_switches, " ".join((f"gpus={self.gpus}", *words)) + "\n")

    def with_gpus(self, count: int) -> SharedNode:
        """Give the node so many GPUs and wait until it shows them."""
        wanted = dataclasses.replace(self, gpus=count)
        wanted.turn()

        def shown() -> bool:
            state = self.state()
            return state.gpus == {"nvidia.com/gpu": str(count)} and state.labels["nvidia.com/gpu.count"] == str(count)

        eventually(f"{count} GPUs", shown, 30)
        return dataclasses.replace(wanted, before=self.state())

    def label(self, name: str, value: str | None) -> None:
        """Set or remove a label, as a user does by hand."""
        self.cluster.kubectl("label", "node", NODE_NAME, "--overwrite", f"{name}={value}" if value else f"{name}-")

    def offers(self, resource: str, count: int) -> None:
        """Wait until the node offers exactly so many."""
        eventually(f"{count} of {resource}", lambda: self.state().gpus == {resource: str(count)}, 30)

    def is_back(self) -> None:
        """Wait until the node is as it was; the kubelet needs its second to tell of devices that changed."""
        eventually(f"the node is as before: {self.state()}", lambda: self.state() == self.before, 20)

    def words(self, tech: str, **options: str) -> list[str]:
        """Return the words of `gputax share` on this cluster, short enough for a test of two tenants."""
        chosen = {"image": self.cluster.image, "plugin-config": PLUGIN_CONFIG, "memory": "512Mi", "repeats": "1"}
        chosen |= {"ready-timeout": "60", "warmup": "0.5s", "window": "1s", "slices": "7", "cpus": "1", "tech": tech}
        chosen |= {name.replace("_", "-"): value for name, value in options.items()}
        return ["share", "--env", "k8s", *(word for name, value in chosen.items() for word in (f"--{name}", value))]


def write_whole(path: Path, text: str) -> None:
    """Write a file that the plugin reads twice a second: it must never find half of it."""
    part = path.with_suffix(".part")
    part.write_text(text)
    part.rename(path)


def state_of(cluster: RealCluster) -> NodeState:
    """Read the node."""
    node = cluster.get("node", NODE_NAME)
    offered = {name: count for name, count in node["status"]["allocatable"].items() if name.startswith("nvidia.com/")}
    # The kubelet and the controllers write annotations of their own.
    annotations = {name: value for name, value in node["metadata"].get("annotations", {}).items() if "gputax" in name}
    return NodeState(
        {name: value for name, value in node["metadata"]["labels"].items() if "kubernetes.io" not in name},
        annotations,
        {name: count for name, count in offered.items() if count != "0"},
    )


def install_plugin_files(cluster: RealCluster) -> None:
    """Give the device plugin its files as the documentation says."""
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLUGIN_NAMESPACE}})
    cluster.kubectl("apply", "-n", PLUGIN_NAMESPACE, "-k", str(REPOSITORY / "kubernetes/sharing/device-plugin"))


def record_in(directory: Path) -> dict[str, Any]:
    """Read an experiment."""
    return dict(json.loads((directory / "sharing.json").read_text()))


def evidence_of(record: dict[str, Any], technique: str) -> dict[str, Any]:
    """Return the evidence of the technique's only cell."""
    (cell,) = [each for each in record["cells"] if each["technique"] == technique]
    return dict(cell["evidence"])
