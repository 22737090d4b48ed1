"""Find the nodes with GPUs, and install NVIDIA's device plugin, at a pinned version, if they do not advertise them."""

from __future__ import annotations

from collections.abc import Callable

from gputax.deploy.plan import AwaitGpus, Manifest
from gputax.deploy.tools import ClusterAccess, Tools
from gputax.errors import PreflightError
from gputax.kubernetes.client import ForbiddenError
from gputax.kubernetes.nodes import node_facts

PLUGIN_VERSION = "v0.20.0"
PLUGIN_IMAGE = f"nvcr.io/nvidia/k8s-device-plugin:{PLUGIN_VERSION}"
PLUGIN_NAMESPACE = "kube-system"
# A name of our own, so that an existing plugin is never changed.
PLUGIN_NAME = "gputax-nvidia-device-plugin"
# The kubelet looks for plugin sockets only here: the only host path that the plugin needs.
PLUGIN_SOCKETS = "/var/lib/kubelet/device-plugins"


def plugin_daemon_set() -> Manifest:
    """Return the DaemonSet; on a node without a driver it waits without failing (FAIL_ON_INIT_ERROR=false)."""
    selector = {"name": PLUGIN_NAME}
    container = {
        "name": "nvidia-device-plugin-ctr",
        "image": PLUGIN_IMAGE,
        "env": [{"name": "FAIL_ON_INIT_ERROR", "value": "false"}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "sockets", "mountPath": PLUGIN_SOCKETS}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": PLUGIN_NAME,
            "namespace": PLUGIN_NAMESPACE,
            "labels": {"app.kubernetes.io/managed-by": "gputax", **selector},
        },
        "spec": {
            "selector": {"matchLabels": selector},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {
                "metadata": {"labels": selector},
                "spec": {
                    "priorityClassName": "system-node-critical",
                    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
                    "containers": [container],
                    "volumes": [{"name": "sockets", "hostPath": {"path": PLUGIN_SOCKETS, "type": "Directory"}}],
                },
            },
        },
    }


POLL_S = 3.0


def allocatable(nodes: list[Manifest], resource: str) -> int:
    """Return how many of the resource the nodes offer in total."""
    return sum(node_facts(node).offered(resource) for node in nodes)


def await_gpus(tools: Tools, action: AwaitGpus, say: Callable[[str], None], apply: Callable[[Manifest], None]) -> None:
    """Install the plugin if GPU nodes do not advertise GPUs; raise if there are none or it is not allowed."""
    cluster = tools.cluster()
    named = [node.name for node in map(node_facts, cluster.list("Node")) if node.gpu_label]
    if not named:
        raise PreflightError(
            f"no node offers {action.resource} or has a GPU label",
            where="nodes of the cluster",
            next_step="label a node that has a GPU: kubectl label node NAME nvidia.com/gpu.present=true; "
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
            f"{', '.join(named)} has a GPU but does not advertise {action.resource}: no device plugin runs there",
            where="nodes of the cluster",
            next_step=f"deploy without --no-device-plugin, or kubectl apply -f manifests/{action.plugin.file}",
        )
    say(f"{', '.join(named)}: no {action.resource}; installing NVIDIA's device plugin {PLUGIN_VERSION}")
    for manifest in action.plugin.objects:
        apply(manifest)
    deadline_s = tools.seconds() + action.limit_s
    while not allocatable(cluster.list("Node"), action.resource):
        if tools.seconds() > deadline_s:
            raise PreflightError(
                f"the device plugin runs, but no node offers {action.resource} after {action.limit_s:.0f} s",
                where=", ".join(named),
                next_step=f"kubectl -n {PLUGIN_NAMESPACE} logs daemonset/{PLUGIN_NAME}: "
                "the driver or NVIDIA's container runtime is missing on the node",
            )
        tools.sleep(POLL_S)


def _other_plugins(cluster: ClusterAccess) -> list[str]:
    """Return other device plugins, as namespace/name; empty without the permission to list them."""
    try:
        found = cluster.list("DaemonSet", namespace="*")
    except ForbiddenError:
        return []
    return [
        f"{each['metadata']['namespace']}/{each['metadata']['name']}"
        for each in found
        if each["metadata"]["name"] != PLUGIN_NAME and "k8s-device-plugin" in str(each.get("spec"))
    ]
