"""The Kubernetes objects that gputax makes, as plain data: pure, so that every field can be tested and compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from gputax.plan.options import NAMESPACE

Manifest: TypeAlias = dict[str, Any]

APP = "gputax"
NAME_LABEL = "app.kubernetes.io/name"
RUN_LABEL = "gputax.dev/run"
ROLE_LABEL = "app.kubernetes.io/component"
GPU_RESOURCE = "nvidia.com/gpu"
CONTAINER = "gputax"
# Any uid but 0 does; the image has files of no owner in particular and writes only to its two emptyDirs.
USER_ID = 10001
IDLE_LIMIT_S = 900
RESULTS = "/results"
XEN_RUNTIME_CLASS = "xen-gpu"
XEN_HANDLER = "xen-cri"
XEN_NODE_LABEL = "xen-enabled"
# Where libvgpu and the socket of the node's proxy are: in the image, and on the node.
NATIVE = "/opt/gputax/native"
LIBVGPU_DIRECTORY = f"{NATIVE}/vgpu"
SOFTWARE_DIRECTORY = f"{NATIVE}/software"
OWN_FACTS = {
    "GPUTAX_POD": "metadata.name",
    "GPUTAX_POD_UID": "metadata.uid",
    "GPUTAX_NAMESPACE": "metadata.namespace",
    "GPUTAX_NODE": "spec.nodeName",
}
PROXY_DIRECTORY = "/run/gputax-proxy"
PROXY_SOCKET = f"{PROXY_DIRECTORY}/proxy.sock"


@dataclass(frozen=True)
class Size:
    """What a container gets, no more and no less: requests equal limits, so that the pod is Guaranteed."""

    cpus: int = 2
    memory: str = "4Gi"
    gpus: int = 0
    gpu_resource: str = GPU_RESOURCE
    """By which name GPUs are asked for: a shared or a divided GPU has another than a whole one."""
    millicpus: int = 0
    """Instead of whole CPUs, where tenants of one node have less than one each; 0: `cpus` counts."""
    cpu_limited: bool = True
    """False for a server of others: a quota on it would stop all its tenants for the rest of each period."""

    def resources(self) -> Manifest:
        """Return requests and limits; GPUs are named in both, because Kubernetes wants them equal anyway."""
        amounts = {"cpu": f"{self.millicpus}m" if self.millicpus else str(self.cpus), "memory": self.memory}
        if self.gpus:
            amounts[self.gpu_resource] = str(self.gpus)
        limits = {name: amount for name, amount in amounts.items() if name != "cpu" or self.cpu_limited}
        return {"requests": dict(amounts), "limits": limits}


@dataclass(frozen=True)
class PodPlan:
    """One pod of a run, before it is written as a manifest."""

    name: str
    run_id: str
    image: str
    size: Size = field(default_factory=Size)
    namespace: str = NAMESPACE
    role: str = "worker"
    command: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    node: str = ""
    runtime_class: str = ""
    pull_policy: str = "IfNotPresent"
    pull_secret: str = ""
    service_account: str = ""
    tenant_of_proxy: bool = False
    """The directory with the proxy's socket is mounted, for a tenant to connect to."""
    serves_proxy: bool = False
    """The pod is the proxy itself: it owns that directory, which belongs to root on the node."""
    startup_probe: Mapping[str, Any] = field(default_factory=dict)
    knows_itself: bool = False
    """The program inside is told its pod's name, uid and node, because nobody outside takes the evidence."""
    further_labels: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[str, int] = field(default_factory=dict)
    """Ports by name, for whoever looks for metrics."""
    host_ipc: bool = False
    """The pod sees the node's shared memory, through which some MPS installations talk with their clients."""


def labels(run_id: str, role: str = "worker") -> dict[str, str]:
    """Return what every object of a run carries."""
    return {
        NAME_LABEL: APP,
        "app.kubernetes.io/managed-by": APP,
        ROLE_LABEL: role,
        RUN_LABEL: run_id,
    }


def hold_command(idle_s: int = IDLE_LIMIT_S) -> list[str]:
    """Return what keeps a pod alive for workers to be started in, until nobody used it for so long."""
    return ["python", "-m", "gputax.worker.hold", "--idle-s", str(idle_s)]


def pod(plan: PodPlan) -> Manifest:
    """Return the manifest of a pod of one container, restricted as far as its role lets it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": plan.name,
            "namespace": plan.namespace,
            "labels": {**labels(plan.run_id, plan.role), **plan.further_labels},
        },
        "spec": pod_spec(plan),
    }


def pod_spec(plan: PodPlan) -> Manifest:
    """Return what a pod and a Job's template have in common."""
    spec: Manifest = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        "securityContext": _pod_security(plan),
        "containers": [_container(plan)],
        "volumes": _volumes(plan),
    }
    if plan.service_account:
        spec["serviceAccountName"] = plan.service_account
    if plan.runtime_class:
        spec["runtimeClassName"] = plan.runtime_class
    if plan.pull_secret:
        spec["imagePullSecrets"] = [{"name": plan.pull_secret}]
    if plan.node:
        # By affinity and not by nodeName, which would pass the scheduler by and with it every check of resources.
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [plan.node]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        spec["affinity"] = {"nodeAffinity": required}
    if plan.size.gpus:
        spec["tolerations"] = [gpu_toleration()]
    if plan.host_ipc:
        spec["hostIPC"] = True
    return spec


def gpu_toleration() -> Manifest:
    """Return the toleration of the taint that most clusters put on their GPU nodes."""
    return {"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}


def _pod_security(plan: PodPlan) -> Manifest:
    if plan.serves_proxy:
        # The node's directory belongs to root, so who makes a socket there must be root: still without capabilities.
        return {"runAsUser": 0, "runAsGroup": 0, "seccompProfile": {"type": "RuntimeDefault"}}
    return {
        "runAsNonRoot": True,
        "runAsUser": USER_ID,
        "runAsGroup": USER_ID,
        "fsGroup": USER_ID,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _container(plan: PodPlan) -> Manifest:
    mounts: list[Manifest] = [
        {"name": "tmp", "mountPath": "/tmp"},
        {"name": "results", "mountPath": RESULTS},
    ]
    if plan.tenant_of_proxy or plan.serves_proxy:
        mounts.append({"name": "proxy", "mountPath": PROXY_DIRECTORY, "readOnly": not plan.serves_proxy})
    variables = {"HOME": "/tmp", "TMPDIR": "/tmp", **plan.variables}
    return {
        **({"startupProbe": dict(plan.startup_probe)} if plan.startup_probe else {}),
        "name": CONTAINER,
        "image": plan.image,
        "imagePullPolicy": plan.pull_policy,
        "command": list(plan.command) or hold_command(),
        **({"ports": _ports(plan)} if plan.ports else {}),
        "env": [
            *({"name": name, "value": value} for name, value in variables.items()),
            *(own_facts() if plan.knows_itself else ()),
        ],
        "resources": plan.size.resources(),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }


def _ports(plan: PodPlan) -> list[Manifest]:
    return [{"name": name, "containerPort": port} for name, port in plan.ports.items()]


def own_facts() -> list[Manifest]:
    """Return the variables that tell a program which pod it is in."""
    return [
        {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
        for name, path in OWN_FACTS.items()
    ]


def _volumes(plan: PodPlan) -> list[Manifest]:
    volumes: list[Manifest] = [{"name": "tmp", "emptyDir": {}}, {"name": "results", "emptyDir": {}}]
    if plan.tenant_of_proxy or plan.serves_proxy:
        # A tenant never makes the directory: where it is missing, no proxy serves on that node.
        kind = "DirectoryOrCreate" if plan.serves_proxy else "Directory"
        volumes.append({"name": "proxy", "hostPath": {"path": PROXY_DIRECTORY, "type": kind}})
    return volumes


def job(plan: PodPlan, words: Sequence[str], *, deadline_s: int = 7200, ttl_s: int | None = 86400) -> Manifest:
    """Return the Job that runs a command of gputax once; a failed benchmark is told and not tried again in silence."""
    spec: Manifest = {
        "backoffLimit": 0,
        "activeDeadlineSeconds": deadline_s,
        "template": {
            "metadata": {"labels": labels(plan.run_id, plan.role)},
            "spec": pod_spec(replace(plan, command=tuple(words), knows_itself=True)),
        },
    }
    if ttl_s is not None:
        spec["ttlSecondsAfterFinished"] = ttl_s
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": plan.name, "namespace": plan.namespace, "labels": labels(plan.run_id, plan.role)},
        "spec": spec,
    }


def suite_words(suite: str = "quick", *further: str, environment: str = "k8s") -> list[str]:
    """Return the command of a Job: the suite, the record in /results, and the result block at the end of its log."""
    words = ["gputax", "run", "--env", environment, "--inside", "--suite", suite, *further]
    return [*words, "--out", RESULTS, "--overwrite", "--result-block"]


def namespace(name: str = NAMESPACE, *, hostpath: bool = False) -> Manifest:
    """Return the namespace with its pod security: restricted, unless a layer needs a path of the node."""
    level = "privileged" if hostpath else "restricted"
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name,
            "labels": {
                NAME_LABEL: APP,
                "app.kubernetes.io/managed-by": APP,
                "pod-security.kubernetes.io/enforce": level,
                "pod-security.kubernetes.io/warn": level,
            },
        },
    }


def runtime_class() -> Manifest:
    """Return the RuntimeClass of the layer xen."""
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": XEN_RUNTIME_CLASS, "labels": {NAME_LABEL: APP}},
        "handler": XEN_HANDLER,
        "overhead": {"podFixed": {"memory": "256Mi", "cpu": "100m"}},
        "scheduling": {"nodeSelector": {XEN_NODE_LABEL: "true"}},
    }
