"""Each tenant's share of a node: equal sizes that fit, however many tenants run; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gputax.errors import PreflightError
from gputax.kubernetes.nodes import VENDOR, NodeFacts
from gputax.kubernetes.objects import Manifest, Size
from gputax.kubernetes.quantity import quantity

# The assumed share of other pods on a node if we may not list them.
UNKNOWN_OTHERS = 0.2
LEAST_MILLICPUS = 50
LEAST_MEMORY_MB = 256
STEP_MILLICPUS = 10


@dataclass(frozen=True)
class Others:
    """The resources that other pods request on a node."""

    millicpus: float = 0.0
    memory_mb: float = 0.0
    with_gpu: tuple[str, ...] = ()


def others_on(pods: Iterable[Manifest], run_id_label: str, run_id: str) -> Others:
    """Add up the requests of the pods on a node, except those of this run."""
    millicpus = memory_mb = 0.0
    with_gpu = []
    for each in pods:
        metadata = each.get("metadata") or {}
        if (metadata.get("labels") or {}).get(run_id_label) == run_id:
            continue
        if (each.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            continue
        for container in (each.get("spec") or {}).get("containers") or ():
            resources = container.get("resources") or {}
            requests = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
            millicpus += quantity(str(requests.get("cpu", "0"))) * 1000
            memory_mb += quantity(str(requests.get("memory", "0"))) / 2**20
            if any(name.startswith(VENDOR) for name in requests):
                with_gpu.append(f"{metadata.get('namespace')}/{metadata.get('name')}")
    return Others(millicpus, memory_mb, tuple(dict.fromkeys(with_gpu)))


def tenant_size(node: NodeFacts, parts: int, others: Others | None, cpus: int, memory: str) -> Size:
    """Return a tenant's size: as requested, or an equal share of what is left on the node."""
    total = quantity(node.allocatable.get("cpu", "0")) * 1000
    total_mb = quantity(node.allocatable.get("memory", "0")) / 2**20
    left = total * (1 - UNKNOWN_OTHERS) if others is None else total - others.millicpus
    left_mb = total_mb * (1 - UNKNOWN_OTHERS) if others is None else total_mb - others.memory_mb
    each_mb = min(quantity(memory) / 2**20, left_mb / parts) if total_mb else quantity(memory) / 2**20
    each = int(left / parts) // STEP_MILLICPUS * STEP_MILLICPUS
    if each_mb < LEAST_MEMORY_MB or (not cpus and each < LEAST_MILLICPUS):
        raise PreflightError(
            f"{parts} tenants do not fit: {max(0.0, left) / 1000:.2f} CPUs and {max(0.0, left_mb):.0f} MiB are left",
            where=f"node {node.name}",
            next_step="use fewer --tenants or another --node, or stop other pods there: kubectl get pods -A -o wide",
        )
    whole = each_mb * 2**20 == quantity(memory)
    text = memory if whole else f"{int(each_mb)}Mi"
    if cpus or each >= 1000:
        # Whole CPUs, because a kubelet can reserve those for one container.
        return Size(cpus or each // 1000, text)
    return Size(1, text, millicpus=each)
