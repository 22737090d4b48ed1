"""Writes the YAML files of kubernetes/ for sharing: python -m gputax.sharing.kubernetes.manifests kubernetes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gputax.kubernetes.manifests import RUN_ID, ManifestFile, patch, write
from gputax.kubernetes.nodes import (
    GKE_CLIENTS,
    GKE_PARTITION,
    GKE_STRATEGY,
    MIG_RESOURCE,
    NOS_LABEL,
    SHARED_RESOURCE,
    STRATEGY_LABEL,
)
from gputax.kubernetes.objects import (
    APP,
    GPU_RESOURCE,
    NAME_LABEL,
    ROLE_LABEL,
    Manifest,
    PodPlan,
    Size,
    labels,
    namespace,
    pod_spec,
)
from gputax.kubernetes.permissions import RBAC, Permission
from gputax.plan.options import IMAGE
from gputax.sharing.flavours import EXCLUSIVE_KEY, STRATEGIES, file_key, plugin_files
from gputax.sharing.kubernetes.plugin_config import DEFAULT
from gputax.sharing.kubernetes.tenant_pods import METRICS_PORT, PORT_NAME, TECHNIQUE_LABEL

NODES_ROLE = "gputax-sharing"
FILES_ROLE = "gputax-plugin-files"
# The names of the plugin's ConfigMap in NVIDIA's guide and in `make install`.
FILES_NAMES = (DEFAULT[1], "gputax-sharing")

NODE_PERMISSIONS: tuple[Permission, ...] = (
    Permission("list", "nodes", "find the node with the GPU"),
    Permission("get", "nodes", "read the labels that are restored afterwards"),
    Permission("watch", "nodes", "see the node offer the technique"),
    Permission("patch", "nodes", "label the node, and restore its labels"),
    Permission("list", "pods", "see what else runs on the node and uses its GPU"),
    Permission("list", "daemonsets", "find the ConfigMap that the device plugin reads", group="apps"),
)
FILES_PERMISSIONS: tuple[Permission, ...] = (
    Permission("get", "configmaps", "see which files the device plugin has"),
    Permission("patch", "configmaps", "add the techniques' files, and remove them again"),
    Permission("delete", "configmaps", "delete it if it was created for them"),
)


def access_sharing() -> list[Manifest]:
    """Return the opt-in roles, and the binding of the first to the service account of kubernetes/access."""
    nodes = [_rule(each) for each in NODE_PERMISSIONS]
    files = [{**_rule(each), "resourceNames": list(FILES_NAMES)} for each in FILES_PERMISSIONS]
    # RBAC cannot restrict `create` by name.
    files.append(_rule(Permission("create", "configmaps", "create it if there is none")))
    binding: Manifest = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": _metadata(NODES_ROLE),
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": NODES_ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": APP, "namespace": APP}],
    }
    return [_role(NODES_ROLE, _joined(nodes)), _role(FILES_ROLE, _joined(files)), binding]


def _rule(permission: Permission) -> Manifest:
    return {"apiGroups": [permission.group], "resources": [permission.resource], "verbs": [permission.verb]}


def _joined(rules: list[Manifest]) -> list[Manifest]:
    """Merge the rules of each resource into one."""
    joined: list[Manifest] = []
    for rule in rules:
        same = [each for each in joined if {**each, "verbs": []} == {**rule, "verbs": []}]
        if same:
            same[0]["verbs"] = [*same[0]["verbs"], *rule["verbs"]]
        else:
            joined.append(rule)
    return joined


def _role(name: str, rules: list[Manifest]) -> Manifest:
    return {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": _metadata(name), "rules": rules}


def _metadata(name: str) -> Manifest:
    return {"name": name, "labels": {"app.kubernetes.io/name": APP, "app.kubernetes.io/managed-by": APP}}


PARTS = 7
"""The number of shares of a GPU: the most that MIG supports."""
PROFILE = "1g.10gb"
"""A seventh of an 80 GB A100 or H100."""
# Requests equal limits (Guaranteed); seven of them need 7 CPUs and 28 GiB.
CLIENT_SIZE = Size(cpus=1, memory="4Gi")
CLIENT = "client"
WORKLOAD = "yolos-small"


@dataclass(frozen=True)
class Client:
    """One overlay of kubernetes/sharing/overlays: a tenant under one technique of one flavour."""

    technique: str
    comment: str
    resource: str = ""
    """The resource of which its pod requests one; empty on the CPU."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    host_ipc: bool = False
    size: Size = CLIENT_SIZE


CLIENTS: Mapping[str, Client] = {
    "ts": Client(
        "time-slicing",
        """\
The driver lets the tenants take turns; nothing limits one of them.
MPS has the same resource name, so the label of the node tells the two apart.
""",
        SHARED_RESOURCE,
        {STRATEGY_LABEL: "time-slicing"},
    ),
    "mps": Client(
        "mps",
        """\
One CUDA server runs all tenants; each is capped to 1/7 of the SMs and of the memory, also when it is alone.
Time-slicing has the same resource name, so the label of the node tells the two apart.
""",
        SHARED_RESOURCE,
        {STRATEGY_LABEL: "mps"},
    ),
    "mig": Client(
        "mig",
        "A slice of the hardware per tenant: 1g.10gb is a seventh of an 80 GB A100 or H100; other GPUs have other "
        "names.",
        f"{MIG_RESOURCE}{PROFILE}",
    ),
    "cpu": Client(
        "cpu-quota",
        "A stand-in to try the procedure on any cluster; its metrics say so, and its numbers are not a GPU's.",
        size=Size(millicpus=500, memory="2Gi"),
    ),
    "gke-ts": Client(
        "time-slicing",
        """\
GKE fixes sharing when a node pool is created (gpu-sharing-strategy=time-sharing, max-shared-clients-per-gpu=7)
and keeps the resource's name.
""",
        GPU_RESOURCE,
        {GKE_STRATEGY: STRATEGIES["time-slicing"], GKE_CLIENTS: str(PARTS)},
    ),
    "gke-mps": Client(
        "mps",
        """\
GKE fixes sharing when a node pool is created (gpu-sharing-strategy=mps, max-shared-clients-per-gpu=7), keeps the
resource's name, caps each container by its variables, and needs the host's IPC namespace.
""",
        GPU_RESOURCE,
        {GKE_STRATEGY: STRATEGIES["mps"], GKE_CLIENTS: str(PARTS)},
        host_ipc=True,
    ),
    "gke-mig": Client(
        "mig",
        "GKE divides the GPU when a node pool is created (gpu-partition-size=1g.10gb) and keeps the resource's name.",
        GPU_RESOURCE,
        {GKE_PARTITION: PROFILE},
    ),
    "nos-mps": Client(
        "mps",
        "10 GB of memory per tenant and no limit on the SMs, unlike the MPS of NVIDIA's plugin; needs the host's IPC "
        "namespace.",
        f"{GPU_RESOURCE}-10gb",
        {NOS_LABEL: "mps"},
        host_ipc=True,
    ),
}


def client_base() -> Manifest:
    """Return the Deployment that every overlay starts from: a tenant without a technique."""
    return _deployment(CLIENT_SIZE, ["--workload", WORKLOAD, "--device", "cuda"])


def client_deployment(client: Client) -> Manifest:
    """Return the Deployment of one overlay."""
    device = "cuda" if client.resource else "cpu"
    size = replace(client.size, gpus=1, gpu_resource=client.resource) if client.resource else client.size
    arguments = ["--workload", WORKLOAD, "--device", device, "--technique", client.technique]
    deployment = _deployment(size, arguments, host_ipc=client.host_ipc)
    template = deployment["spec"]["template"]
    template["metadata"]["labels"][TECHNIQUE_LABEL] = client.technique
    if client.node_selector:
        template["spec"]["nodeSelector"] = dict(client.node_selector)
    return deployment


def _deployment(size: Size, arguments: list[str], *, host_ipc: bool = False) -> Manifest:
    chosen = {NAME_LABEL: APP, ROLE_LABEL: CLIENT}
    same_node = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": dict(chosen)}}
    plan = PodPlan(
        f"{APP}-{CLIENT}",
        RUN_ID,
        IMAGE,
        size,
        role=CLIENT,
        command=(APP, CLIENT),
        ports={PORT_NAME: METRICS_PORT},
        knows_itself=True,
        host_ipc=host_ipc,
    )
    spec = pod_spec(plan)
    # It writes no results, only metrics.
    spec["volumes"] = [each for each in spec["volumes"] if each["name"] != "results"]
    spec["containers"] = [_container(container, arguments) for container in spec["containers"]]
    spec["restartPolicy"] = "Always"
    # Let the running inference finish before the pod ends.
    spec["terminationGracePeriodSeconds"] = 30
    # All tenants of a device must be on one node; the first pod may run anywhere.
    spec["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [same_node]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": plan.name, "namespace": plan.namespace, "labels": labels(RUN_ID, CLIENT)},
        "spec": {
            "replicas": 1,
            # A new technique replaces the old one; old and new pods side by side would share the device.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": chosen},
            "template": {"metadata": {"labels": labels(RUN_ID, CLIENT)}, "spec": spec},
        },
    }


def _container(container: dict[str, Any], arguments: list[str]) -> Manifest:
    return {
        **container,
        "args": arguments,
        "ports": [{**port, "protocol": "TCP"} for port in container["ports"]],
        "volumeMounts": [each for each in container["volumeMounts"] if each["name"] != "results"],
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": PORT_NAME},
            "periodSeconds": 5,
            "timeoutSeconds": 5,
        },
    }


def files() -> list[ManifestFile]:
    """Return the generated files of kubernetes/access-sharing and kubernetes/sharing."""
    made = [
        ManifestFile("access-sharing/access.yaml", ACCESS_SHARING, access_sharing()),
        ManifestFile("sharing/base/deployment.yaml", CLIENT_BASE, [client_base()]),
    ]
    for name, client in CLIENTS.items():
        overlay = f"sharing/overlays/{name}"
        deployment = patch(client_base(), client_deployment(client))
        made.append(ManifestFile(f"{overlay}/deployment.yaml", client.comment, [deployment]))
        if client.host_ipc:
            privileged = patch(namespace(), namespace(privileged=True))
            made.append(ManifestFile(f"{overlay}/namespace.yaml", HOST_IPC, [privileged]))
    return [*made, *device_plugin_files()]


def device_plugin_files() -> list[ManifestFile]:
    """Return the files of kubernetes/sharing/device-plugin, as `gputax share` passes them to NVIDIA's device plugin."""
    import yaml

    comments = {EXCLUSIVE_KEY: EXCLUSIVE}
    for technique, comment in (("time-slicing", TIME_SLICING), ("mps", MPS)):
        comments[file_key(technique, PARTS)] = comment
        comments[file_key(technique, PARTS, gpus=2)] = f"{comment}\n{PACKED}"
    texts = {**plugin_files(PARTS), **plugin_files(PARTS, gpus=2)}
    return [
        ManifestFile(
            f"sharing/device-plugin/{key.removeprefix('gputax-')}.yaml",
            comments[key],
            [yaml.safe_load(texts[key])],
            notice=False,
        )
        for key in sorted(texts)
    ]


# Header comments of the files: what each is for, and why.
ACCESS_SHARING = """\
What `gputax share --env k8s` needs beyond kubernetes/access; opt in: labels of nodes are the whole cluster's.
The device plugin's files are in a namespace of its own; there, once (gpu-operator where the GPU operator has it):
  kubectl -n nvidia-device-plugin create rolebinding gputax-plugin-files \\
    --clusterrole=gputax-plugin-files --serviceaccount=gputax:gputax
"""
CLIENT_BASE = """\
The tenant: constant inferences of YOLOS-small, one pod per replica, metrics for Prometheus on port 8000.
An overlay adds the technique: which resource a pod asks for, on which nodes, and the name in its metrics.
"""
HOST_IPC = "The host's IPC namespace is beyond what restricted and baseline pod security allow."
EXCLUSIVE = "One tenant owns a whole GPU, as nvidia.com/gpu: what a node without the label does."
TIME_SLICING = "Seven tenants take turns on a GPU, as nvidia.com/gpu.shared."
MPS = "Seven tenants of one MPS server, as nvidia.com/gpu.shared; each is capped to 1/7 of the SMs and of the memory."
PACKED = "For a node with several GPUs: by default the plugin would spread the tenants over them."

if __name__ == "__main__":
    write(files(), Path(sys.argv[1]))
