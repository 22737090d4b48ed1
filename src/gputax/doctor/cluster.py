"""Check a cluster: reachability, permissions, nodes, GPUs, quotas, pending pods, runtime classes."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gputax.doctor.claims import check_claims, claim_facts
from gputax.doctor.finding import Finding
from gputax.environments.image import local_cpus
from gputax.errors import GputaxError
from gputax.kubernetes.client import Cluster
from gputax.kubernetes.nodes import node_facts, quantity
from gputax.kubernetes.objects import APP, VGPU_RESOURCE, Manifest
from gputax.kubernetes.permissions import PERMISSIONS
from gputax.kubernetes.watch import event_words, state_of
from gputax.plan.environment import PROXY, XEN, EnvironmentName
from gputax.plan.options import DRA, EnvironmentOptions

PLUGIN_NAMES = ("device-plugin", "nvidia-driver", "gpu-operator", "nvidia-container-toolkit", "gpu-feature-discovery")


def inspect_cluster(context: str, namespace: str, *, claims: bool = False) -> dict[str, Any]:
    """Return the facts; nearly all of them are missing if the cluster cannot be reached.

    `claims` asks for what a pod needs that gets its device by a ResourceClaim.
    """
    facts: dict[str, Any] = {"namespace": namespace, "problems": {}}
    try:
        cluster = Cluster(context, namespace)
        facts |= {"server": cluster.server, "context": cluster.context, "version": cluster.version()}
    except GputaxError as error:
        return {**facts, "unreachable": error.to_dict()}

    def asked(part: str, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except GputaxError as error:
            facts["problems"][part] = error.what
            return None

    try:
        facts["permissions"] = asked("permissions", lambda: _permissions(cluster))
        facts["namespace_labels"] = asked("namespace", lambda: _namespace_labels(cluster))
        facts["nodes"] = asked("nodes", lambda: [node_facts(node).to_dict() for node in cluster.list("Node")])
        facts["plugins"] = asked("plugins", lambda: _plugins(cluster))
        facts["quotas"] = asked("quotas", lambda: [quota_facts(quota) for quota in cluster.list("ResourceQuota")])
        facts["pods"] = asked("pods", lambda: _pods(cluster))
        facts["runtime_classes"] = asked(
            "runtime classes",
            lambda: {each["metadata"]["name"]: each["handler"] for each in cluster.list("RuntimeClass")},
        )
        facts["dra"] = asked("dra", lambda: claim_facts(cluster, claims=claims))
        facts["api_calls"] = cluster.calls
    finally:
        cluster.close()
    return facts


def quota_facts(quota: Manifest) -> dict[str, Any]:
    """Return the remaining amounts of a quota; pure."""
    status = quota.get("status") or {}
    used = status.get("used") or {}
    left = {
        name: quantity(str(hard)) - quantity(str(used.get(name, "0")))
        for name, hard in (status.get("hard") or {}).items()
    }
    return {"name": quota["metadata"]["name"], "left": left, "hard": status.get("hard") or {}}


def _permissions(cluster: Cluster) -> list[dict[str, Any]]:
    answers = []
    for each in PERMISSIONS:
        allowed, reason = cluster.allowed(each.verb, each.resource, group=each.group)
        answers.append(
            {"verb": each.verb, "resource": each.resource, "why": each.why, "allowed": allowed, "reason": reason}
        )
    return answers


def _namespace_labels(cluster: Cluster) -> dict[str, str] | None:
    found = cluster.get("Namespace", cluster.namespace)
    return None if found is None else dict(found["metadata"].get("labels") or {})


def _plugins(cluster: Cluster) -> list[dict[str, Any]]:
    found = []
    for each in cluster.list("Pod", namespace="*"):
        name = str(each["metadata"]["name"])
        if any(word in name for word in PLUGIN_NAMES):
            state = state_of(each)
            found.append(
                {
                    "name": name,
                    "namespace": each["metadata"].get("namespace"),
                    "ready": state.phase == "ready",
                    "ended": state.phase == "ended",
                    "words": state.words,
                    "node": state.node,
                }
            )
    return found


def _pods(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the namespace's pods that do not run, each with the cluster's reason."""
    found = []
    for each in cluster.list("Pod"):
        name, state = str(each["metadata"]["name"]), state_of(each)
        if state.phase in ("waiting", "stuck"):
            fields = {"involvedObject.name": name, "involvedObject.kind": "Pod"}
            words = state.words
            if state.reason in ("", "ContainerCreating"):
                words = event_words(cluster.list("Event", fields=fields)) or words
            ours = (each["metadata"].get("labels") or {}).get("app.kubernetes.io/name") == APP
            found.append({"name": name, "phase": state.phase, "reason": state.reason, "words": words, "ours": ours})
    return found


# The oldest API server on which the WebSocket exec was used.
OLDEST_VERSION = (1, 20)
GPU_TAINT = "nvidia.com/gpu"
XEN_CLASS, XEN_LABEL = "xen-gpu", "xen-enabled"
ACCESS = "kubectl apply -k kubernetes/access"
PLUGIN_FIX = "gputax deploy current"
PROXY_FIX = "kubectl apply -k kubernetes/proxy/gpu"


@dataclass(frozen=True)
class Wanted:
    """The resources that the pod would request."""

    environment: str = "k8s"
    namespace: str = "gputax"
    cpus: int = 2
    memory: str = "4Gi"
    gpus: int = 0
    runtime_class: str = ""
    by_claim: bool = False
    """The device comes by a ResourceClaim (--sharing-flavour dra)."""

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers of its environment."""
        return EnvironmentName.parse(self.environment).layers


def examine_cluster(environment: str, options: EnvironmentOptions, device: str) -> tuple[dict[str, Any], list[Finding]]:
    """Return the cluster's facts and the findings for the pod described by the options."""

    by_claim = options.sharing_flavour == DRA
    facts = inspect_cluster(options.context, options.namespace, claims=by_claim)
    wanted = Wanted(
        environment,
        options.namespace,
        options.cpus or local_cpus(),
        options.memory,
        options.gpu_count(device),
        EnvironmentName.parse(environment).runtime or options.runtime_class,
        by_claim,
    )
    return facts, diagnose_cluster(facts, wanted)


def diagnose_cluster(facts: Mapping[str, Any], wanted: Wanted) -> list[Finding]:
    """Return all findings, in the order in which to fix them."""
    unreachable = facts.get("unreachable")
    if unreachable:
        why = "Nothing can be measured in a cluster that does not answer."
        return [Finding("fail", str(unreachable["what"]), str(unreachable["where"]), why, str(unreachable["next"]))]
    return [finding for check in CHECKS for finding in check(facts, wanted)]


def check_version(facts: Mapping[str, Any], wanted: Wanted) -> list[Finding]:
    """Check the version of the API server."""
    title = f"Kubernetes {facts.get('version')}"
    detail = f"{facts.get('server')}, context {facts.get('context')}"
    numbers = tuple(int(part) for part in str(facts.get("version")).lstrip("v").split(".")[:2] if part.isdigit())
    if len(numbers) == 2 and numbers < OLDEST_VERSION:
        return [Finding("warn", title, detail, "gputax was run on Kubernetes 1.20 to 1.36 only.", "kubectl version")]
    return [Finding("ok", title, detail)]


def check_namespace(facts: Mapping[str, Any], wanted: Wanted) -> list[Finding]:
    """Check that the namespace exists and that its pod security level admits the pod."""
    labels = facts.get("namespace_labels")
    if labels is None:
        problem = (facts.get("problems") or {}).get("namespace")
        if problem:
            return []  # we may not read the namespace; the permissions below decide
        why = "All objects of a run are in one namespace, which gputax does not create itself."
        fix = f"kubectl create namespace {shlex.quote(wanted.namespace)}"
        return [Finding("fail", f"The namespace {wanted.namespace} does not exist", "", why, fix)]
    level = labels.get("pod-security.kubernetes.io/enforce", "")
    return [Finding("ok", f"Namespace {wanted.namespace}", f"pod security {level}" if level else "")]


def check_permissions(facts: Mapping[str, Any], wanted: Wanted) -> list[Finding]:
    """Check the permissions that a run needs."""
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
    """Check that nodes are ready, schedulable and large enough."""
    nodes = facts.get("nodes")
    if nodes is None:
        why = "GPU nodes, taints and sizes could not be checked; problems will show only when a pod is scheduled."
        detail = str((facts.get("problems") or {}).get("nodes", ""))
        return [Finding("warn", "Not permitted to list nodes", detail, why, "kubectl auth can-i list nodes")]
    findings = []
    for node in nodes:
        name = node["name"]
        if not node["ready"]:
            why = "No pods are scheduled there, and pods that run there are lost."
            findings.append(
                Finding("warn", f"Node {name} is not ready", node["why"], why, f"kubectl describe node {name}")
            )
        elif node["cordoned"]:
            why = "No new pods are scheduled there."
            findings.append(Finding("warn", f"Node {name} is cordoned", "", why, f"kubectl uncordon {name}"))
        for taint in node["taints"]:
            if not _tolerated(taint, wanted):
                key, effect = taint.partition("=")[0], taint.rpartition(":")[2]
                why = "Our pods do not tolerate this taint, so they are not scheduled there."
                fix = f"kubectl taint nodes {name} {key}:{effect}-"
                findings.append(Finding("warn", f"Node {name} has the taint {taint}", "", why, fix))
    usable = [node for node in nodes if _usable(node, wanted)]
    if not usable:
        why = "A pod would stay Pending forever."
        return [*findings, Finding("fail", "No node can run our pods", f"{len(nodes)} nodes", why, "kubectl get nodes")]
    largest = max(node["cpus"] for node in usable)
    if largest < wanted.cpus:
        why = f"The pod requests {wanted.cpus} whole CPUs, so that it has as many threads as a bare worker here."
        fix = f"gputax run --env {wanted.environment} --cpus {max(1, int(largest))} --threads {max(1, int(largest))}"
        return [*findings, Finding("fail", f"The largest node has {largest:g} allocatable CPUs", "", why, fix)]
    return [*findings, Finding("ok", f"{len(usable)} of {len(nodes)} nodes usable", f"up to {largest:g} CPUs")]


def check_gpus(facts: Mapping[str, Any], wanted: Wanted) -> list[Finding]:
    """Check which nodes offer GPUs, and which have GPUs that no device plugin advertises."""
    nodes = facts.get("nodes")
    if nodes is None or wanted.by_claim:
        return []
    findings = []
    for node in nodes:
        if node["gpu_hint"] and not node["gpu_capacity"]:
            why = "The node is labelled as having a GPU, but no device plugin advertises it: no pod can request it."
            title = f"Node {node['name']} offers no nvidia.com/gpu"
            findings.append(Finding("fail", title, node["gpu_hint"], why, PLUGIN_FIX))
        elif node["gpu_capacity"] > node["gpus"]:
            why = "The device plugin reports some of its GPUs as unhealthy."
            title = f"Node {node['name']} offers {node['gpus']} of {node['gpu_capacity']} GPUs"
            findings.append(Finding("warn", title, "", why, f"kubectl describe node {node['name']}"))
    offered = {node["name"]: node["gpus"] for node in nodes if node["gpus"]}
    if offered:
        detail = ", ".join(f"{name}: {count}" for name, count in offered.items())
        status, why, fix = ("ok", "", "")
        if max(offered.values()) < wanted.gpus:
            status, why = "fail", f"One pod requests {wanted.gpus} GPUs, and no single node has that many."
            fix = f"gputax run --env {wanted.environment} --gpus {max(offered.values())}"
        findings.append(Finding(status, "GPUs", detail, why, fix))  # type: ignore[arg-type]
    elif not findings:
        why = "Only the CPU and the software device can be measured here; --device cuda would stay Pending."
        fix = "" if not wanted.gpus else PLUGIN_FIX
        findings.append(Finding("fail" if wanted.gpus else "warn", "No node offers a GPU", "", why, fix))
    return findings


def check_proxy(facts: Mapping[str, Any], wanted: Wanted) -> list[Finding]:
    """Check that a node offers places behind a GPU proxy, if the environment needs one."""
    nodes = facts.get("nodes")
    if nodes is None or PROXY not in wanted.layers:
        return []
    offered = {node["name"]: node["vgpus"] for node in nodes if node["vgpus"]}
    if offered:
        detail = ", ".join(f"{name}: {count}" for name, count in offered.items())
        return [Finding("ok", f"Places behind a GPU proxy ({VGPU_RESOURCE})", detail)]
    why = "The pod asks for a place behind its node's GPU proxy, and would stay Pending."
    return [Finding("fail", f"No node offers {VGPU_RESOURCE}", "", why, PROXY_FIX)]


def check_sharing(facts: Mapping[str, Any], wanted: Wanted) -> list[Finding]:
    """Report how nodes share their GPUs, from the labels of NVIDIA's feature discovery, GKE and nos."""
    from gputax.kubernetes.nodes import SHARING_LABELS, NodeFacts
    from gputax.sharing.flavours import flavour_of

    findings = []
    for node in facts.get("nodes") or ():
        labels = node["labels"]
        found = [f"{name}={labels[name]}" for name in SHARING_LABELS if labels.get(name)]
        if found:
            flavour = flavour_of(NodeFacts(str(node["name"]), labels))
            findings.append(Finding("ok", f"Sharing on node {node['name']} ({flavour})", ", ".join(found)))
    return findings


def check_plugins(facts: Mapping[str, Any], wanted: Wanted) -> list[Finding]:
    """Check that the driver and device plugin pods run."""
    plugins = facts.get("plugins")
    if not plugins:
        return []
    broken = [each for each in plugins if not each["ready"] and not each["ended"]]
    if not broken:
        names = sorted({each["name"] for each in plugins if each["ready"]})
        return [Finding("ok", f"{len(names)} driver and device plugin pods run", ", ".join(names[:3]))] if names else []
    why = "These pods set up and advertise GPUs; without them no pod gets a GPU."
    return [
        Finding(
            "fail",
            f"Pod {each['name']} is not running",
            each["words"],
            why,
            f"kubectl -n {each['namespace']} describe pod {each['name']}",
        )
        for each in broken
    ]


def check_quota(facts: Mapping[str, Any], wanted: Wanted) -> list[Finding]:
    """Check that the namespace's quotas leave room for the pod."""
    from gputax.kubernetes.nodes import quantity

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
                why = "The API server would reject the pod."
                fix = f"kubectl -n {wanted.namespace} describe resourcequota {quota['name']}"
                findings.append(Finding("fail", title, detail, why, fix))
    return findings


def check_pods(facts: Mapping[str, Any], wanted: Wanted) -> list[Finding]:
    """Report the namespace's pods that do not run, with the cluster's reason."""
    findings = []
    for each in facts.get("pods") or ():
        state = "Pending" if each["phase"] == "waiting" else "stuck"
        why = "The same problem may block our pods." if not each["ours"] else "A run of gputax is waiting for it."
        if "pull" in each["reason"].lower() or "image" in each["reason"].lower():
            why = "The nodes cannot pull this image: use another with --image, or import it there."
        fix = f"kubectl -n {wanted.namespace} describe pod {each['name']}"
        findings.append(Finding("warn", f"Pod {each['name']} is {state}", each["words"], why, fix))
    return findings


def check_runtime_class(facts: Mapping[str, Any], wanted: Wanted) -> list[Finding]:
    """Check that the RuntimeClass exists and that a node's container runtime has its handler."""
    name = wanted.runtime_class or (XEN_CLASS if XEN in wanted.layers else "")
    classes = facts.get("runtime_classes")
    if not name:
        listed = ", ".join(f"{each} (handler {handler})" for each, handler in sorted((classes or {}).items()))
        return [Finding("ok", "RuntimeClasses", listed)] if listed else []
    if classes is None:
        return []
    if name not in classes:
        why = "The API server rejects a pod whose RuntimeClass does not exist."
        fix = "kubectl apply -k kubernetes/overlays/xen" if name == XEN_CLASS else "kubectl get runtimeclass"
        return [Finding("fail", f"The RuntimeClass {name} does not exist", "", why, fix)]
    nodes = facts.get("nodes") or []
    if name == XEN_CLASS and nodes:
        nodes = [node for node in nodes if node["labels"].get(XEN_LABEL) == "true"]
        if not nodes:
            why = f"The RuntimeClass selects nodes with the label {XEN_LABEL}=true; a pod would stay Pending."
            return [
                Finding(
                    "fail", "No node is labelled as a Xen guest", "", why, f"kubectl label node NAME {XEN_LABEL}=true"
                )
            ]
    handler = classes[name]
    telling = [node for node in nodes if node["runtime_handlers"] is not None]
    if telling and not any(handler in node["runtime_handlers"] for node in telling):
        known = ", ".join(sorted({each or "(default)" for node in telling for each in node["runtime_handlers"]}))
        why = "The node's container runtime has no such handler: the pod would stay in ContainerCreating."
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
    lambda facts, wanted: check_claims(facts.get("dra"), (facts.get("problems") or {}).get("dra", ""), wanted.by_claim),
    check_proxy,
    check_sharing,
    check_plugins,
    check_runtime_class,
    check_quota,
    check_pods,
)


def _tolerated(taint: str, wanted: Wanted) -> bool:
    if taint.endswith(":PreferNoSchedule"):
        return True
    tolerant = bool(wanted.gpus) or wanted.by_claim or PROXY in wanted.layers
    return tolerant and taint.startswith(GPU_TAINT) and taint.endswith(":NoSchedule")


def _usable(node: Mapping[str, Any], wanted: Wanted) -> bool:
    return node["ready"] and not node["cordoned"] and all(_tolerated(taint, wanted) for taint in node["taints"])
