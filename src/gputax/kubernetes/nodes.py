"""What a node tells of its GPUs and of how it shares them; pure, on the Node as the API server gives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gputax.kubernetes.device_plugin import GPU_NODE_LABELS
from gputax.kubernetes.objects import GPU_RESOURCE, Manifest

VENDOR = "nvidia.com/"
SHARED_RESOURCE = f"{GPU_RESOURCE}.shared"
MIG_RESOURCE = "nvidia.com/mig-"
CONFIG_LABEL = "nvidia.com/device-plugin.config"
STRATEGY_LABEL = "nvidia.com/gpu.sharing-strategy"
REPLICAS_LABEL = "nvidia.com/gpu.replicas"
MEMORY_LABEL = "nvidia.com/gpu.memory"
COUNT_LABEL = "nvidia.com/gpu.count"
PRODUCT_LABEL = "nvidia.com/gpu.product"
MIG_CONFIG_LABEL = "nvidia.com/mig.config"
MIG_STATE_LABEL = "nvidia.com/mig.config.state"
MIG_STRATEGY_LABEL = "nvidia.com/mig.strategy"
MIG_CAPABLE_LABEL = "nvidia.com/mig.capable"
OPERATOR_LABELS = "nvidia.com/gpu.deploy."
NOS_LABEL = "nos.nebuly.com/gpu-partitioning"
GKE_ACCELERATOR = "cloud.google.com/gke-accelerator"
GKE_STRATEGY = "cloud.google.com/gke-gpu-sharing-strategy"
GKE_CLIENTS = "cloud.google.com/gke-max-shared-clients-per-gpu"
GKE_PARTITION = "cloud.google.com/gke-gpu-partition-size"
GKE_NO_PLUGIN = "gke-no-default-nvidia-gpu-device-plugin"
# Which labels are kept with a result: all that say how the GPU is shared.
KEPT_LABELS = (
    CONFIG_LABEL, STRATEGY_LABEL, REPLICAS_LABEL, MEMORY_LABEL, COUNT_LABEL, PRODUCT_LABEL, MIG_CONFIG_LABEL,
    MIG_STATE_LABEL, MIG_STRATEGY_LABEL, NOS_LABEL, GKE_ACCELERATOR, GKE_STRATEGY, GKE_CLIENTS, GKE_PARTITION,
)  # fmt: skip


@dataclass(frozen=True)
class NodeFacts:
    """One node, as far as sharing goes."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    allocatable: Mapping[str, str] = field(default_factory=dict)
    usable: bool = True
    """Ready and not cordoned."""

    def offered(self, resource: str) -> int:
        """Return how many of a resource the node has to give, used or not."""
        return int(self.allocatable.get(resource, "0"))

    def label(self, name: str) -> str:
        """Return a label; empty where the node has none."""
        return self.labels.get(name, "")

    @property
    def gpus(self) -> int:
        """How many GPUs it has; 1 where nobody counted them."""
        count = self.label(COUNT_LABEL)
        return int(count) if count.isdigit() and int(count) else 1

    @property
    def memory_mb(self) -> int | None:
        """The memory of one of its GPUs, where feature discovery tells it."""
        text = self.label(MEMORY_LABEL)
        return int(text) if text.isdigit() and int(text) else None

    @property
    def has_gpu(self) -> bool:
        """Whether it offers anything of NVIDIA's, or says that it has a GPU."""
        offers = any(name.startswith(VENDOR) and self.offered(name) for name in self.allocatable)
        return offers or any(self.label(name) not in ("", "false") for name in GPU_NODE_LABELS)

    def kept(self) -> dict[str, Any]:
        """Return what is stored with a result."""
        return {
            "node": self.name,
            "labels": {name: self.labels[name] for name in KEPT_LABELS if name in self.labels},
            "allocatable": {name: count for name, count in self.allocatable.items() if name.startswith(VENDOR)},
        }


def node_facts(node: Manifest) -> NodeFacts:
    """Read a Node."""
    metadata, spec, status = (node.get(key) or {} for key in ("metadata", "spec", "status"))
    ready = [each.get("status") for each in status.get("conditions") or () if each.get("type") == "Ready"]
    return NodeFacts(
        str(metadata.get("name") or ""),
        dict(metadata.get("labels") or {}),
        dict(metadata.get("annotations") or {}),
        {str(name): str(count) for name, count in (status.get("allocatable") or {}).items()},
        ready in ([], ["True"]) and not spec.get("unschedulable"),
    )
