"""The Kubernetes objects that gputax creates, as plain data; pure, so that every field can be tested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from gputax.plan.options import IMAGE, NAMESPACE

Manifest: TypeAlias = dict[str, Any]

APP = "gputax"
NAME_LABEL = "app.kubernetes.io/name"
RUN_LABEL = "gputax.dev/run"
ROLE_LABEL = "app.kubernetes.io/component"
GPU_RESOURCE = "nvidia.com/gpu"
CONTAINER = "gputax"
# Any uid except 0 works: the image depends on no owner and writes only to its two emptyDirs.
USER_ID = 10001
IDLE_LIMIT_S = 900
RESULTS = "/results"
XEN_RUNTIME_CLASS = "xen-gpu"
XEN_HANDLER = "xen-cri"
XEN_NODE_LABEL = "xen-enabled"
# Paths of the native parts in the image.
NATIVE = "/opt/gputax/native"
LIBVGPU_DIRECTORY = f"{NATIVE}/vgpu"
SOFTWARE_DIRECTORY = f"{NATIVE}/software"
OWN_FACTS = {
    "GPUTAX_POD": "metadata.name",
    "GPUTAX_POD_UID": "metadata.uid",
    "GPUTAX_NAMESPACE": "metadata.namespace",
    "GPUTAX_NODE": "spec.nodeName",
}
# The GPU proxy has a namespace of its own: it mounts directories of the node, which tenants never do.
PROXY_NAMESPACE = "gputax-proxy"
PROXY_DIRECTORY = "/run/gputax-proxy"
"""The proxy's directory on the node; in a tenant's container, the directory of its place."""
PROXY_SOCKET = f"{PROXY_DIRECTORY}/proxy.sock"
PROXY_PLACES = "places"
PLACES = 16
VGPU_RESOURCE = "gputax.dev/vgpu"
"""What a tenant's pod asks for: one place behind the proxy of its node."""
# Not below /run, which many distributions mount noexec.
LIBRARY_DIRECTORY = "/var/lib/gputax-proxy"
TENANT_LIBRARY_DIRECTORY = "/opt/gputax-vgpu"
KUBELET_PLUGINS = "/var/lib/kubelet/device-plugins"
"""The kubelet's own place for sockets of device plugins; it is built in."""
CLAIM_IN_POD = "gpu"
"""The name of a ResourceClaim within a pod."""


@dataclass(frozen=True)
class Size:
    """A container's resources: requests equal limits, so that the pod is Guaranteed."""

    cpus: int = 2
    memory: str = "4Gi"
    gpus: int = 0
    gpu_resource: str = GPU_RESOURCE
    """The resource name of the GPUs: shared and partitioned GPUs have other names than whole ones."""
    millicpus: int = 0
    """Used instead of `cpus` for tenants with less than one CPU each; 0: use `cpus`."""
    further: Mapping[str, str] = field(default_factory=dict)
    """Further resources by name, e.g. percentages of a GPU."""
    cpu_limited: bool = True
    """False for a proxy: a CPU quota would stop all its tenants for the rest of each period."""

    def resources(self) -> Manifest:
        """Return requests and limits; GPUs are in both, because Kubernetes requires them to be equal."""
        amounts = {"cpu": f"{self.millicpus}m" if self.millicpus else str(self.cpus), "memory": self.memory}
        if self.gpus:
            amounts[self.gpu_resource] = str(self.gpus)
        amounts |= self.further
        limits = {name: amount for name, amount in amounts.items() if name != "cpu" or self.cpu_limited}
        return {"requests": dict(amounts), "limits": limits}


@dataclass(frozen=True)
class PodClaim:
    """The ResourceClaim that a pod names, by which it gets its device (dynamic resource allocation)."""

    name: str
    request: str = ""
    """The request of the claim whose device the container gets; empty: all of them."""
    template: bool = False
    """`name` is a ResourceClaimTemplate: the pod gets a claim of its own."""


@dataclass(frozen=True)
class PodPlan:
    """The plan of one pod, from which its manifest is made."""

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
    """Ask for a place behind the node's GPU proxy; the device plugin mounts its socket and the library."""
    serves_proxy: bool = False
    """The pod is the proxy itself: it writes to that directory, which belongs to root on the node."""
    probes: Mapping[str, Any] = field(default_factory=dict)
    knows_itself: bool = False
    """Pass the pod's name, uid and node to the program, which has to collect the evidence itself."""
    further_labels: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[str, int] = field(default_factory=dict)
    """Ports by name, for metrics scrapers."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    scheduler: str = ""
    """Empty: the cluster's own."""
    host_ipc: bool = False
    """The pod sees the node's shared memory, which some MPS installations use to talk to their clients."""
    claim: PodClaim | None = None


def labels(run_id: str, role: str = "worker") -> dict[str, str]:
    """Return the labels of every object of a run."""
    return {
        NAME_LABEL: APP,
        "app.kubernetes.io/managed-by": APP,
        ROLE_LABEL: role,
        RUN_LABEL: run_id,
    }


def hold_command(idle_s: int = IDLE_LIMIT_S) -> list[str]:
    """Return the command that keeps a pod alive for workers until it has been idle for `idle_s` seconds."""
    return ["python", "-m", "gputax.worker.hold", "--idle-s", str(idle_s)]


def pod(plan: PodPlan) -> Manifest:
    """Return the manifest of a pod with one container, as restricted as its role allows."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": plan.name,
            "namespace": plan.namespace,
            "labels": {**labels(plan.run_id, plan.role), **plan.further_labels},
            **({"annotations": dict(plan.annotations)} if plan.annotations else {}),
        },
        "spec": pod_spec(plan),
    }


def pod_spec(plan: PodPlan) -> Manifest:
    """Return the spec shared by a pod and a Job's template."""
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
        # Affinity instead of nodeName, which would bypass the scheduler and its resource checks.
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [plan.node]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        spec["affinity"] = {"nodeAffinity": required}
    if plan.claim:
        source = "resourceClaimTemplateName" if plan.claim.template else "resourceClaimName"
        spec["resourceClaims"] = [{"name": CLAIM_IN_POD, source: plan.claim.name}]
    if plan.size.gpus or plan.tenant_of_proxy or plan.claim or plan.scheduler:
        spec["tolerations"] = [gpu_toleration()]
    if plan.scheduler:
        spec["schedulerName"] = plan.scheduler
    if plan.host_ipc:
        spec["hostIPC"] = True
    return spec


def gpu_toleration() -> Manifest:
    """Return the toleration for the taint that most clusters set on GPU nodes."""
    return {"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}


def _pod_security(plan: PodPlan) -> Manifest:
    if plan.serves_proxy:
        # The node's directory belongs to root, so the proxy must be root to create a socket there; no capabilities.
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
    if plan.serves_proxy:
        mounts.append({"name": "proxy", "mountPath": PROXY_DIRECTORY})
    variables = {"HOME": "/tmp", "TMPDIR": "/tmp", **plan.variables}
    if plan.tenant_of_proxy:
        # The device plugin says it too; a pod's own variable counts more than a plugin's, and this one cannot be lost.
        variables["NVIDIA_VISIBLE_DEVICES"] = "void"
    return {
        **plan.probes,
        "name": CONTAINER,
        "image": plan.image,
        "imagePullPolicy": plan.pull_policy,
        "command": list(plan.command) or hold_command(),
        **({"ports": _ports(plan)} if plan.ports else {}),
        "env": [
            *({"name": name, "value": value} for name, value in variables.items()),
            *(own_facts() if plan.knows_itself else ()),
        ],
        "resources": _resources(plan),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }


def _resources(plan: PodPlan) -> Manifest:
    place = {VGPU_RESOURCE: "1"} if plan.tenant_of_proxy else {}
    resources: Manifest = {kind: {**amounts, **place} for kind, amounts in plan.size.resources().items()}
    if plan.claim:
        request = {"request": plan.claim.request} if plan.claim.request else {}
        resources["claims"] = [{"name": CLAIM_IN_POD, **request}]
    return resources


def _ports(plan: PodPlan) -> list[Manifest]:
    return [{"name": name, "containerPort": port} for name, port in plan.ports.items()]


def own_facts() -> list[Manifest]:
    """Return the variables with which a program knows its pod."""
    return [
        {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
        for name, path in OWN_FACTS.items()
    ]


def _volumes(plan: PodPlan) -> list[Manifest]:
    volumes: list[Manifest] = [{"name": "tmp", "emptyDir": {}}, {"name": "results", "emptyDir": {}}]
    if plan.serves_proxy:
        volumes.append({"name": "proxy", "hostPath": {"path": PROXY_DIRECTORY, "type": "DirectoryOrCreate"}})
    return volumes


def job(plan: PodPlan, words: Sequence[str], *, deadline_s: int = 7200, ttl_s: int | None = 86400) -> Manifest:
    """Return the Job that runs a gputax command once; a failed benchmark is reported, not retried."""
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
    """Return a Job's command: run the suite, write to /results, and end the log with the result block."""
    # A Job reports whether it measured; whether its node was quiet is in the record, and `compare` respects it.
    words = ["gputax", "run", "--env", environment, "--inside", "--accept-disturbed", "--suite", suite, *further]
    return [*words, "--out", RESULTS, "--overwrite", "--result-block"]


def namespace(name: str = NAMESPACE, *, privileged: bool = False) -> Manifest:
    """Return the namespace with its pod security level: restricted, unless its pods need something of the node."""
    level = "privileged" if privileged else "restricted"
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


# Together one CPU: the proxy serves, the plugin asks it once a second how it is (0.1 % of a core and 22 MB, seen on the
# cluster of `make e2e`). The proxy's memory is that of the software device and of its workers.
PROXY_SIZE = Size(millicpus=900, memory="4Gi", cpu_limited=False)
PLUGIN_SIZE = Size(millicpus=100, memory="128Mi", cpu_limited=False)
STATUS = ("gputax", "proxy", "status", "--json", "--socket", PROXY_SOCKET)


def proxy_variables() -> dict[str, str]:
    """Return the variables with which a tenant's program loads libvgpu as its driver, and libvgpu finds the proxy."""
    return {"LD_LIBRARY_PATH": TENANT_LIBRARY_DIRECTORY, "GPUTAX_PROXY_SOCKET": PROXY_SOCKET}


def proxy_command(device: str) -> list[str]:
    """Return the command of a proxy's container; its own socket is the operator's, tenants have places."""
    return [
        "gputax", "proxy", "start", "--foreground", "--device", device, "--socket", PROXY_SOCKET,
        "--places", str(PLACES),
    ]  # fmt: skip


def proxy_probes() -> Manifest:
    """Return the probes: each asks for the proxy's status with a program of a millisecond, not with Python."""
    answers = {"exec": {"command": [f"{NATIVE}/gputax-proxy", "--check", f"{PROXY_SOCKET}.status"]}}
    return {
        "startupProbe": {**answers, "periodSeconds": 1, "timeoutSeconds": 10, "failureThreshold": 60},
        "readinessProbe": {**answers, "periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": 1},
        "livenessProbe": {**answers, "periodSeconds": 20, "timeoutSeconds": 10, "failureThreshold": 3},
    }


def proxy_plan(image: str = IMAGE, device: str = "cuda") -> PodPlan:
    """Return the pod of a proxy: only it has the device, and it is reachable only through its sockets."""
    return PodPlan(
        PROXY_NAMESPACE,
        "",
        image,
        replace(PROXY_SIZE, gpus=1 if device == "cuda" else 0),
        PROXY_NAMESPACE,
        role="proxy",
        command=tuple(proxy_command(device)),
        variables={"GPUTAX_NATIVE": NATIVE},
        serves_proxy=True,
        probes=proxy_probes(),
    )


PLUGIN_CONTAINER = "plugin"


def _plugin_container(proxy: Manifest) -> Manifest:
    """Return the container beside the proxy that offers its places to the kubelet; it has no device."""
    return {
        "name": PLUGIN_CONTAINER,
        "image": proxy["image"],
        "imagePullPolicy": proxy["imagePullPolicy"],
        "command": [
            "gputax", "proxy", "plugin", "--socket", PROXY_SOCKET, "--library-directory", LIBRARY_DIRECTORY,
        ],
        "env": [*proxy["env"], {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}],
        "resources": PLUGIN_SIZE.resources(),
        "securityContext": proxy["securityContext"],
        "volumeMounts": [
            {"name": "plugin-tmp", "mountPath": "/tmp"},
            {"name": "proxy", "mountPath": PROXY_DIRECTORY, "readOnly": True},
            {"name": "library", "mountPath": LIBRARY_DIRECTORY},
            {"name": "kubelet", "mountPath": KUBELET_PLUGINS},
        ],
    }  # fmt: skip


def proxy_daemon_set(plan: PodPlan, run_id: str) -> Manifest:
    """Return the DaemonSet that runs one proxy, and the plugin that offers it, on every node with a GPU."""
    spec = {**pod_spec(plan), "restartPolicy": "Always"}
    spec["containers"] = [*spec["containers"], _plugin_container(spec["containers"][0])]
    spec["volumes"] = [
        *spec["volumes"],
        {"name": "plugin-tmp", "emptyDir": {}},
        {"name": "library", "hostPath": {"path": LIBRARY_DIRECTORY, "type": "DirectoryOrCreate"}},
        {"name": "kubelet", "hostPath": {"path": KUBELET_PLUGINS, "type": "Directory"}},
    ]
    chosen = {"app.kubernetes.io/name": APP, "app.kubernetes.io/component": plan.role}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": plan.name, "namespace": plan.namespace, "labels": labels(run_id, plan.role)},
        "spec": {
            "selector": {"matchLabels": chosen},
            "template": {"metadata": {"labels": labels(run_id, plan.role)}, "spec": spec},
        },
    }


def proxy_network_policy() -> Manifest:
    """Return the policy of the proxy's namespace: no traffic at all, because everything goes over Unix sockets."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": "no-network",
            "namespace": PROXY_NAMESPACE,
            "labels": {NAME_LABEL: APP, "app.kubernetes.io/managed-by": APP},
        },
        "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
    }
