"""Facts about a node, its GPUs and how it shares them, read from its Node object; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gputax.kubernetes.objects import GPU_RESOURCE, VGPU_RESOURCE, Manifest

SCALES = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def quantity(text: str) -> float:
    """Convert a quantity to a number: `100m` is 0.1, `1Gi` is 2^30."""
    for suffix in sorted(SCALES, key=len, reverse=True):
        if text.endswith(suffix):
            return float(text.removesuffix(suffix)) * SCALES[suffix]
    return float(text or 0)


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
OPERATOR_LABELS = "nvidia.com/gpu.deploy."
NOS_LABEL = "nos.nebuly.com/gpu-partitioning"
GKE_ACCELERATOR = "cloud.google.com/gke-accelerator"
GKE_STRATEGY = "cloud.google.com/gke-gpu-sharing-strategy"
GKE_CLIENTS = "cloud.google.com/gke-max-shared-clients-per-gpu"
GKE_PARTITION = "cloud.google.com/gke-gpu-partition-size"
GKE_NO_PLUGIN = "gke-no-default-nvidia-gpu-device-plugin"
# Labels of nodes with an NVIDIA GPU, advertised or not: feature discovery, clouds, older conventions.
GPU_LABELS = (
    "nvidia.com/gpu.present",
    "feature.node.kubernetes.io/pci-10de.present",
    GKE_ACCELERATOR,
    "k8s.amazonaws.com/accelerator",
    "kubernetes.azure.com/accelerator",
    "feature.node.kubernetes.io/pci-0300_10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
    "accelerator",
)
# Labels set by the software that shares or partitions a GPU.
SHARING_LABELS = (
    STRATEGY_LABEL, REPLICAS_LABEL, MIG_CONFIG_LABEL, MIG_STATE_LABEL, NOS_LABEL, GKE_STRATEGY, GKE_CLIENTS,
    GKE_PARTITION,
)  # fmt: skip
# Labels stored with a result: all that describe how the GPU is shared.
KEPT_LABELS = (
    CONFIG_LABEL, STRATEGY_LABEL, REPLICAS_LABEL, MEMORY_LABEL, COUNT_LABEL, PRODUCT_LABEL, MIG_CONFIG_LABEL,
    MIG_STATE_LABEL, MIG_STRATEGY_LABEL, NOS_LABEL, GKE_ACCELERATOR, GKE_STRATEGY, GKE_CLIENTS, GKE_PARTITION,
)  # fmt: skip


@dataclass(frozen=True)
class NodeFacts:
    """The facts about a node that decide which pods run there and which GPUs they get."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    allocatable: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=dict)
    ready: bool | None = None
    """None if the node does not report it."""
    why_not_ready: str = ""
    cordoned: bool = False
    taints: tuple[str, ...] = ()
    """Each as KEY=VALUE:EFFECT."""
    runtime_handlers: tuple[str, ...] = ()
    """Empty if the kubelet is too old to report them."""
    kubelet: str | None = None

    @property
    def usable(self) -> bool:
        """Whether the scheduler may place a pod there; a node without a Ready condition counts as ready."""
        return self.ready is not False and not self.cordoned

    def offered(self, resource: str) -> int:
        """Return the allocatable amount of a resource, used or not."""
        return int(self.allocatable.get(resource, "0"))

    def label(self, name: str) -> str:
        """Return a label's value; empty if it is not set."""
        return self.labels.get(name, "")

    @property
    def gpus(self) -> int:
        """The number of GPUs; 1 if no label gives it."""
        count = self.label(COUNT_LABEL)
        return int(count) if count.isdigit() and int(count) else 1

    @property
    def memory_mb(self) -> int | None:
        """The memory of one GPU, if feature discovery reports it."""
        text = self.label(MEMORY_LABEL)
        return int(text) if text.isdigit() and int(text) else None

    @property
    def has_gpu(self) -> bool:
        """Whether it offers an NVIDIA resource or has a GPU label."""
        offers = any(name.startswith(VENDOR) and self.offered(name) for name in self.allocatable)
        return offers or bool(self.gpu_label)

    @property
    def gpu_label(self) -> str:
        """The first GPU label, with its value; empty if there is none."""
        found = (f"{name}={self.labels[name]}" for name in GPU_LABELS if self.label(name) not in ("", "false"))
        return next(found, "")

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as `gputax doctor --json` prints them."""
        return {
            "name": self.name,
            "ready": self.ready is True,
            "why": self.why_not_ready,
            "cordoned": self.cordoned,
            "taints": list(self.taints),
            "cpus": quantity(self.allocatable.get("cpu", "0")),
            "memory": self.allocatable.get("memory"),
            "gpus": self.offered(GPU_RESOURCE),
            "gpu_capacity": int(self.capacity.get(GPU_RESOURCE, "0")),
            "vgpus": self.offered(VGPU_RESOURCE),
            "gpu_hint": self.gpu_label,
            "labels": dict(self.labels),
            "runtime_handlers": list(self.runtime_handlers) or None,
            "kubelet": self.kubelet,
        }

    def kept(self) -> dict[str, Any]:
        """Return the facts that are stored with a result."""
        return {
            "node": self.name,
            "labels": {name: self.labels[name] for name in KEPT_LABELS if name in self.labels},
            "allocatable": {name: count for name, count in self.allocatable.items() if name.startswith(VENDOR)},
        }


def node_facts(node: Manifest) -> NodeFacts:
    """Read a Node."""
    metadata, spec, status = (node.get(key) or {} for key in ("metadata", "spec", "status"))
    ready: Manifest = next((each for each in status.get("conditions") or () if each.get("type") == "Ready"), {})
    return NodeFacts(
        str(metadata.get("name") or ""),
        dict(metadata.get("labels") or {}),
        dict(metadata.get("annotations") or {}),
        {str(name): str(amount) for name, amount in (status.get("allocatable") or {}).items()},
        {str(name): str(amount) for name, amount in (status.get("capacity") or {}).items()},
        ready=ready.get("status") == "True" if ready else None,
        why_not_ready=ready.get("message") or ready.get("reason") or "",
        cordoned=bool(spec.get("unschedulable")),
        taints=tuple(
            f"{each.get('key')}={each.get('value', '')}:{each.get('effect')}" for each in spec.get("taints") or ()
        ),
        runtime_handlers=tuple(each.get("name", "") for each in status.get("runtimeHandlers") or ()),
        kubelet=(status.get("nodeInfo") or {}).get("kubeletVersion"),
    )
