"""A cluster's GPU nodes: find them, what other pods use there, and each tenant's equal share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gputax.errors import PreflightError
from gputax.kubernetes.client import Cluster, ForbiddenError
from gputax.kubernetes.nodes import VENDOR, NodeFacts, node_facts, quantity
from gputax.kubernetes.objects import RUN_LABEL, Manifest, Size
from gputax.sharing.kubernetes.claim import ACCESS

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


def listed_nodes(cluster: Cluster) -> list[NodeFacts]:
    """Return all nodes."""
    try:
        return [node_facts(each) for each in cluster.list("Node")]
    except ForbiddenError as error:
        raise PreflightError(error.what, where=error.where, next_step=ACCESS) from error


def gpu_nodes(cluster: Cluster, named: str = "") -> list[NodeFacts]:
    """Return the named node, or all usable nodes with a GPU, sorted by name."""
    nodes = listed_nodes(cluster)
    if named:
        nodes = [node for node in nodes if node.name == named]
        if not nodes:
            raise PreflightError(f"node {named} does not exist", next_step="kubectl get nodes")
        return nodes
    found = sorted((node for node in nodes if node.has_gpu and node.usable), key=lambda node: node.name)
    if not found:
        raise PreflightError(
            "no usable node offers a GPU",
            where=f"{len(nodes)} nodes of the cluster",
            next_step="run gputax doctor --env k8s; without a GPU: gputax share --env bare",
        )
    return found


def others_of_run(cluster: Cluster, node: str, run_id: str) -> Others | None:
    """Return the resources that other pods use on a node; None if we may not list them."""
    try:
        there = cluster.list("Pod", namespace="*", fields={"spec.nodeName": node})
    except ForbiddenError:
        return None
    return others_on(there, RUN_LABEL, run_id)
