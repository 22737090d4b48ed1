"""See which nodes have GPUs, and install the device plugin where they do not advertise them."""

from __future__ import annotations

from collections.abc import Callable

from gputax.deploy.access import ClusterAccess, Tools
from gputax.deploy.plan import AwaitGpus, Manifest
from gputax.errors import PreflightError
from gputax.kubernetes import device_plugin
from gputax.kubernetes.client import ForbiddenError
from gputax.kubernetes.nodes import node_facts

POLL_S = 3.0


def allocatable(nodes: list[Manifest], resource: str) -> int:
    """Return how many of the resource the nodes offer together."""
    return sum(node_facts(node).offered(resource) for node in nodes)


def await_gpus(tools: Tools, action: AwaitGpus, say: Callable[[str], None], apply: Callable[[Manifest], None]) -> None:
    """Install the plugin if GPU nodes advertise nothing; raise where no node has a GPU, or the plugin is not wanted."""
    cluster = tools.cluster()
    named = [node.name for node in map(node_facts, cluster.list("Node")) if node.gpu_label]
    if not named:
        raise PreflightError(
            f"no node offers {action.resource}, and no label tells of a GPU",
            where="nodes of the cluster",
            next_step="kubectl label node NAME nvidia.com/gpu.present=true where there is one; "
            "or measure the CPU: --device cpu",
        )
    others = _other_plugins(cluster)
    if others:
        raise PreflightError(
            f"{', '.join(named)}: a device plugin is installed ({others[0]}), but no node offers {action.resource}",
            where="nodes of the cluster",
            next_step=f"kubectl -n {others[0].split('/')[0]} logs daemonset/{others[0].split('/')[1]}",
        )
    if not action.install:
        raise PreflightError(
            f"{', '.join(named)} has a GPU but advertises no {action.resource}: no device plugin runs there",
            where="nodes of the cluster",
            next_step=f"deploy without --no-device-plugin, or kubectl apply -f manifests/{action.plugin.file}",
        )
    say(f"{', '.join(named)}: no {action.resource}; installs NVIDIA's device plugin {device_plugin.VERSION}")
    for manifest in action.plugin.objects:
        apply(manifest)
    deadline_s = tools.seconds() + action.limit_s
    while not allocatable(cluster.list("Node"), action.resource):
        if tools.seconds() > deadline_s:
            raise PreflightError(
                f"the device plugin runs, but no node offers {action.resource} after {action.limit_s:.0f} s",
                where=", ".join(named),
                next_step=f"kubectl -n {device_plugin.NAMESPACE} logs daemonset/{device_plugin.NAME}: "
                "the driver or NVIDIA's container runtime is missing on the node",
            )
        tools.sleep(POLL_S)


def _other_plugins(cluster: ClusterAccess) -> list[str]:
    """Return the device plugins of others, as namespace/name; without the permission to look, none."""
    try:
        found = cluster.list("DaemonSet", namespace="*")
    except ForbiddenError:
        return []
    return [
        f"{each['metadata']['namespace']}/{each['metadata']['name']}"
        for each in found
        if each["metadata"]["name"] != device_plugin.NAME and "k8s-device-plugin" in str(each.get("spec"))
    ]
