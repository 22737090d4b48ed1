"""Find a cluster's GPU nodes, and the other pods on them."""

from __future__ import annotations

from gputax.errors import PreflightError
from gputax.kubernetes.client import Cluster, ForbiddenError
from gputax.kubernetes.nodes import NodeFacts, node_facts
from gputax.kubernetes.objects import RUN_LABEL
from gputax.sharing.kubernetes.claim import ACCESS
from gputax.sharing.kubernetes.room import Others, others_on


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
