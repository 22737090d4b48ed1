"""Ask a cluster and check its answers: reachable, permitted, nodes, GPUs, quota, pods that wait, runtime classes."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gputax.doctor.finding import Finding
from gputax.environments.image import local_cpus
from gputax.plan.environment import PROXY, XEN, EnvironmentName
from gputax.plan.options import EnvironmentOptions

# Oldest API server whose WebSocket exec we rely on.
OLDEST_VERSION = (1, 20)
GPU_TAINT = "nvidia.com/gpu"
XEN_CLASS, XEN_LABEL = "xen-gpu", "xen-enabled"
ACCESS = "kubectl apply -k kubernetes/access"
PLUGIN_FIX = "gputax deploy current"


@dataclass(frozen=True)
class Wanted:
    """What the pod would ask for."""

    environment: str = "k8s"
    namespace: str = "gputax"
    cpus: int = 2
    memory: str = "4Gi"
    gpus: int = 0
    runtime_class: str = ""

    @property
    def layers(self) -> tuple[str, ...]:
        """What its environment consists of."""
        return EnvironmentName.parse(self.environment).layers


def examine_cluster(environment: str, options: EnvironmentOptions, device: str) -> tuple[dict[str, Any], list[Finding]]:
    """Return the cluster's facts and what they mean for the pod that the options describe."""
    from gputax.kubernetes.inspection import inspect_cluster

    facts = inspect_cluster(options.context, options.namespace)
    wanted = Wanted(
        environment,
        options.namespace,
        options.cpus or local_cpus(),
        options.memory,
        options.gpu_count(device),
        options.runtime_class,
    )
    return facts, diagnose_cluster(facts, wanted)


def diagnose_cluster(facts: Mapping[str, Any], wanted: Wanted) -> list[Finding]:
    """Return what is well and what is wrong, in the order in which to mend it."""
    unreachable = facts.get("unreachable")
    if unreachable:
        why = "Nothing can be measured in a cluster that does not answer."
        return [Finding("fail", str(unreachable["what"]), str(unreachable["where"]), why, str(unreachable["next"]))]
    return [finding for check in CHECKS for finding in check(facts, wanted)]


def check_version(facts: Mapping[str, Any], wanted: Wanted) -> list[Finding]:
    """Return which cluster it is."""
    title = f"Kubernetes {facts.get('version')}"
    detail = f"{facts.get('server')}, context {facts.get('context')}"
    numbers = tuple(int(part) for part in str(facts.get("version")).lstrip("v").split(".")[:2] if part.isdigit())
    if len(numbers) == 2 and numbers < OLDEST_VERSION:
        return [Finding("warn", title, detail, "Older than what gputax was run on (1.20 to 1.34).", "kubectl version")]
    return [Finding("ok", title, detail)]


def check_namespace(facts: Mapping[str, Any], wanted: Wanted) -> list[Finding]:
    """Return whether the namespace is there and lets the pod in."""
    labels = facts.get("namespace_labels")
    if labels is None:
        problem = (facts.get("problems") or {}).get("namespace")
        if problem:
            return []  # whether it exists may not be asked; the permissions below decide
        why = "Every object of a run lies in one namespace, which gputax does not make by itself."
        fix = f"kubectl create namespace {shlex.quote(wanted.namespace)}"
        return [Finding("fail", f"There is no namespace {wanted.namespace}", "", why, fix)]
    level = labels.get("pod-security.kubernetes.io/enforce", "")
    if PROXY in wanted.layers and level in ("restricted", "baseline"):
        why = "The proxy's socket is a path of the node, which this level forbids."
        fix = f"kubectl label namespace {wanted.namespace} pod-security.kubernetes.io/enforce=privileged --overwrite"
        return [Finding("fail", f"Pod security of {wanted.namespace} is {level}", "", why, fix)]
    return [Finding("ok", f"Namespace {wanted.namespace}", f"pod security {level}" if level else "")]


def check_permissions(facts: Mapping[str, Any], wanted: Wanted) -> list[Finding]:
    """Return what we may not do there."""
    asked = facts.get("permissions")
    if asked is None:
        return []
    missing = [each for each in asked if not each["allowed"]]
    if not missing:
        return [Finding("ok", f"All {len(asked)} permissions that a run needs")]
    fix = f"{ACCESS} && kubectl -n {wanted.namespace} create rolebinding NAME --role=gputax --user=YOU"
    return [
        Finding(
            "fail",
            f"Not permitted: {each['verb']} {each['resource']}",
            each["reason"],
            f"Needed to {each['why']}.",
            fix,
        )
        for each in missing
    ]


def check_nodes(facts: Mapping[str, Any], wanted: Wanted) -> list[Finding]:
    """Return whether nodes are ready, open and large enough."""
    nodes = facts.get("nodes")
    if nodes is None:
        why = "GPU nodes, taints and sizes could not be checked; the scheduler's own words will tell."
        detail = str((facts.get("problems") or {}).get("nodes", ""))
        return [Finding("warn", "Nodes may not be listed", detail, why, "kubectl auth can-i list nodes")]
    findings = []
    for node in nodes:
        name = node["name"]
        if not node["ready"]:
            why = "Nothing is scheduled there, and a pod that runs there is lost."
            findings.append(
                Finding("warn", f"Node {name} is not ready", node["why"], why, f"kubectl describe node {name}")
            )
        elif node["cordoned"]:
            why = "Nothing new is scheduled there."
            findings.append(Finding("warn", f"Node {name} is cordoned", "", why, f"kubectl uncordon {name}"))
        for taint in node["taints"]:
            if not _tolerated(taint, wanted):
                key, effect = taint.partition("=")[0], taint.rpartition(":")[2]
                why = "Our pods do not tolerate this taint, so they stay away from the node."
                fix = f"kubectl taint nodes {name} {key}:{effect}-"
                findings.append(Finding("warn", f"Node {name} has the taint {taint}", "", why, fix))
    usable = [node for node in nodes if _usable(node, wanted)]
    if not usable:
        why = "A pod would stay Pending for ever."
        return [*findings, Finding("fail", "No node takes our pods", f"{len(nodes)} nodes", why, "kubectl get nodes")]
    largest = max(node["cpus"] for node in usable)
    if largest < wanted.cpus:
        why = f"The pod asks for {wanted.cpus} whole CPUs, so that it has as many threads as a bare worker here."
        fix = f"gputax run --env {wanted.environment} --cpus {max(1, int(largest))} --threads {max(1, int(largest))}"
        return [*findings, Finding("fail", f"The largest node has {largest:g} CPUs to give", "", why, fix)]
    return [*findings, Finding("ok", f"{len(usable)} of {len(nodes)} nodes usable", f"up to {largest:g} CPUs")]


def check_gpus(facts: Mapping[str, Any], wanted: Wanted) -> list[Finding]:
    """Return which nodes offer GPUs, and which have some that nobody advertises."""
    nodes = facts.get("nodes")
    if nodes is None:
        return []
    findings = []
    for node in nodes:
        if node["gpu_hint"] and not node["gpu_capacity"]:
            why = "The node says that it has a GPU, but no device plugin offers it: no pod can ask for it."
            title = f"Node {node['name']} offers no nvidia.com/gpu"
            findings.append(Finding("fail", title, node["gpu_hint"], why, PLUGIN_FIX))
        elif node["gpu_capacity"] > node["gpus"]:
            why = "The device plugin calls some of its GPUs unhealthy."
            title = f"Node {node['name']} offers {node['gpus']} of {node['gpu_capacity']} GPUs"
            findings.append(Finding("warn", title, "", why, f"kubectl describe node {node['name']}"))
    offered = {node["name"]: node["gpus"] for node in nodes if node["gpus"]}
    if offered:
        detail = ", ".join(f"{name}: {count}" for name, count in offered.items())
        status, why, fix = ("ok", "", "")
        if max(offered.values()) < wanted.gpus:
            status, why = "fail", f"One pod asks for {wanted.gpus} GPUs, which no single node has."
            fix = f"gputax run --env {wanted.environment} --gpus {max(offered.values())}"
        findings.append(Finding(status, "GPUs", detail, why, fix))  # type: ignore[arg-type]
    elif not findings:
        why = "Only the CPU and the software device can be measured here; --device cuda would stay Pending."
        fix = "" if not wanted.gpus else PLUGIN_FIX
        findings.append(Finding("fail" if wanted.gpus else "warn", "No node offers a GPU", "", why, fix))
    return findings


def check_sharing(facts: Mapping[str, Any], wanted: Wanted) -> list[Finding]:
    """Return how nodes share their GPUs, by the labels of NVIDIA's discovery, GKE and nos."""
    from gputax.kubernetes.nodes import SHARING_LABELS, NodeFacts
    from gputax.sharing.flavours.flavour import flavour_of

    findings = []
    for node in facts.get("nodes") or ():
        labels = node["labels"]
        told = [f"{name}={labels[name]}" for name in SHARING_LABELS if labels.get(name)]
        if told:
            flavour = flavour_of(NodeFacts(str(node["name"]), labels))
            findings.append(Finding("ok", f"Sharing on node {node['name']} ({flavour})", ", ".join(told)))
    return findings


def check_plugins(facts: Mapping[str, Any], wanted: Wanted) -> list[Finding]:
    """Return whether the pods that make GPUs usable run."""
    plugins = facts.get("plugins")
    if not plugins:
        return []
    broken = [each for each in plugins if not each["ready"] and not each["ended"]]
    if not broken:
        names = sorted({each["name"] for each in plugins if each["ready"]})
        return [Finding("ok", f"{len(names)} driver and device plugin pods run", ", ".join(names[:3]))] if names else []
    why = "GPUs are offered and prepared by these pods; without them nothing can be scheduled on a GPU."
    return [
        Finding(
            "fail",
            f"Pod {each['name']} does not run",
            each["words"],
            why,
            f"kubectl -n {each['namespace']} describe pod {each['name']}",
        )
        for each in broken
    ]


def check_quota(facts: Mapping[str, Any], wanted: Wanted) -> list[Finding]:
    """Return whether a quota of the namespace leaves room for the pod."""
    from gputax.kubernetes.quantity import quantity

    needs: dict[str, float] = {"pods": 1, "count/pods": 1}
    for prefix in ("", "requests.", "limits."):
        needs |= {f"{prefix}cpu": float(wanted.cpus), f"{prefix}memory": quantity(wanted.memory)}
    needs["requests.nvidia.com/gpu"] = float(wanted.gpus)
    findings = []
    for quota in facts.get("quotas") or ():
        for name, left in quota["left"].items():
            if needs.get(name, 0) > left:
                title = f"Quota {quota['name']} leaves too little {name}"
                detail = f"{left:g} of {quota['hard'][name]} left, {needs[name]:g} needed"
                why = "The API server would refuse the pod."
                fix = f"kubectl -n {wanted.namespace} describe resourcequota {quota['name']}"
                findings.append(Finding("fail", title, detail, why, fix))
    return findings


def check_pods(facts: Mapping[str, Any], wanted: Wanted) -> list[Finding]:
    """Return which pods of the namespace do not run, and why in the cluster's own words."""
    findings = []
    for each in facts.get("pods") or ():
        state = "Pending" if each["phase"] == "waiting" else "stuck"
        why = "What keeps this pod will keep ours as well." if not each["ours"] else "A run of gputax waits for it."
        if "pull" in each["reason"].lower() or "image" in each["reason"].lower():
            why = "The nodes cannot get this image: name one that they can, or import it there."
        fix = f"kubectl -n {wanted.namespace} describe pod {each['name']}"
        findings.append(Finding("warn", f"Pod {each['name']} is {state}", each["words"], why, fix))
    return findings


def check_runtime_class(facts: Mapping[str, Any], wanted: Wanted) -> list[Finding]:
    """Return whether the RuntimeClass exists, and whether a node's container runtime has its handler."""
    name = wanted.runtime_class or (XEN_CLASS if XEN in wanted.layers else "")
    classes = facts.get("runtime_classes")
    if not name or classes is None:
        return []
    if name not in classes:
        why = "The API server refuses a pod whose RuntimeClass does not exist."
        fix = "kubectl apply -k kubernetes/overlays/xen" if name == XEN_CLASS else "kubectl get runtimeclass"
        return [Finding("fail", f"There is no RuntimeClass {name}", "", why, fix)]
    nodes = facts.get("nodes") or []
    if name == XEN_CLASS and nodes:
        nodes = [node for node in nodes if node["labels"].get(XEN_LABEL) == "true"]
        if not nodes:
            why = f"The RuntimeClass wants nodes with the label {XEN_LABEL}=true; a pod would stay Pending."
            return [
                Finding(
                    "fail", "No node is labelled as a Xen guest", "", why, f"kubectl label node NAME {XEN_LABEL}=true"
                )
            ]
    handler = classes[name]
    telling = [node for node in nodes if node["runtime_handlers"] is not None]
    if telling and not any(handler in node["runtime_handlers"] for node in telling):
        known = ", ".join(sorted({each or "(default)" for node in telling for each in node["runtime_handlers"]}))
        why = "The node's container runtime has no such handler: the pod would hang in ContainerCreating."
        fix = f"containerd config dump | grep -A3 'runtimes.{handler}'"
        return [
            Finding("fail", f"No node has the handler {handler} of RuntimeClass {name}", f"known: {known}", why, fix)
        ]
    return [Finding("ok", f"RuntimeClass {name}", f"handler {handler}")]


CHECKS: tuple[Callable[[Mapping[str, Any], Wanted], list[Finding]], ...] = (
    check_version,
    check_namespace,
    check_permissions,
    check_nodes,
    check_gpus,
    check_sharing,
    check_plugins,
    check_runtime_class,
    check_quota,
    check_pods,
)


def _tolerated(taint: str, wanted: Wanted) -> bool:
    if taint.endswith(":PreferNoSchedule"):
        return True
    return bool(wanted.gpus) and taint.startswith(GPU_TAINT) and taint.endswith(":NoSchedule")


def _usable(node: Mapping[str, Any], wanted: Wanted) -> bool:
    return node["ready"] and not node["cordoned"] and all(_tolerated(taint, wanted) for taint in node["taints"])
