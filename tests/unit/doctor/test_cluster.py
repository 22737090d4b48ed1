from __future__ import annotations

from typing import Any

import pytest

from gputax.doctor.cluster import Wanted, diagnose_cluster, quota_facts
from gputax.doctor.finding import Finding

WANTED = Wanted(cpus=2)


def node(**changes: Any) -> dict[str, Any]:
    return {
        "name": "n1", "ready": True, "why": "", "cordoned": False, "taints": [], "cpus": 4.0, "memory": "8Gi",
        "gpus": 1, "gpu_capacity": 1, "vgpus": 0, "gpu_hint": "", "labels": {}, "runtime_handlers": ["", "runc"],
        **changes,
    }  # fmt: skip


def facts(**changes: Any) -> dict[str, Any]:
    return {
        "server": "https://x", "context": "c", "version": "v1.34.4", "problems": {}, "namespace_labels": {},
        "permissions": [{"verb": "create", "resource": "pods", "why": "w", "allowed": True, "reason": ""}],
        "nodes": [node()], "plugins": [], "quotas": [], "pods": [], "runtime_classes": {}, **changes,
    }  # fmt: skip


def found(facts: dict[str, Any], wanted: Wanted = WANTED) -> list[Finding]:
    return [finding for finding in diagnose_cluster(facts, wanted) if finding.status != "ok"]


def test_a_healthy_cluster_has_nothing_to_mend() -> None:
    assert found(facts()) == []


XEN = Wanted("k8s+xen")
BROKEN = {
    "name": "nvidia-device-plugin-1",
    "namespace": "kube-system",
    "ready": False,
    "ended": False,
    "words": "Crash",
    "node": "n1",
}
CASES: dict[str, tuple[dict[str, Any], Wanted, str, str]] = {
    "no namespace": (facts(namespace_labels=None), WANTED, "gputax does not exist", "kubectl create namespace gputax"),
    "no proxy": (facts(), Wanted("k8s+proxy"), "No node offers gputax.dev/vgpu", "apply -k kubernetes/proxy/gpu"),
    "permission": (
        facts(permissions=[{"verb": "create", "resource": "pods/exec", "why": "w", "allowed": False, "reason": "r"}]),
        WANTED,
        "Not permitted: create pods/exec",
        "create rolebinding",
    ),
    "nodes forbidden": (facts(nodes=None), WANTED, "Not permitted to list nodes", "kubectl auth can-i list nodes"),
    "not ready": (facts(nodes=[node(), node(name="n2", ready=False)]), WANTED, "n2 is not ready", "describe node n2"),
    "cordoned": (facts(nodes=[node(), node(name="n2", cordoned=True)]), WANTED, "cordoned", "kubectl uncordon n2"),
    "taint": (
        facts(nodes=[node(), node(name="n2", taints=["team=a:NoSchedule"])]),
        WANTED,
        "taint team=a:NoSchedule",
        "kubectl taint nodes n2 team:NoSchedule-",
    ),
    "too small": (facts(nodes=[node(cpus=1.9)]), WANTED, "1.9 allocatable CPUs", "--cpus 1 --threads 1"),
    "no plugin": (
        facts(nodes=[node(gpus=0, gpu_capacity=0, gpu_hint="nvidia.com/gpu.present=true")]),
        WANTED,
        "offers no nvidia.com/gpu",
        "gputax deploy",
    ),
    "unhealthy": (facts(nodes=[node(gpus=1, gpu_capacity=2)]), WANTED, "1 of 2 GPUs", "kubectl describe node n1"),
    "no gpu": (facts(nodes=[node(gpus=0, gpu_capacity=0)]), WANTED, "No node offers a GPU", ""),
    "too many": (facts(), Wanted(gpus=9), "GPUs", "--gpus 1"),
    "plugin": (facts(plugins=[BROKEN]), WANTED, "plugin-1 is not running", "describe pod nvidia-device-plugin-1"),
    "quota": (
        facts(quotas=[{"name": "q", "left": {"requests.cpu": 1.0}, "hard": {"requests.cpu": "4"}}]),
        WANTED,
        "Quota q leaves too little requests.cpu",
        "describe resourcequota q",
    ),
    "pending": (
        facts(pods=[{"name": "p", "phase": "waiting", "reason": "Unschedulable", "words": "0/1 nodes", "ours": True}]),
        WANTED,
        "Pod p is Pending",
        "describe pod p",
    ),
    "image": (
        facts(pods=[{"name": "p", "phase": "stuck", "reason": "ImagePullBackOff", "words": "no host", "ours": True}]),
        WANTED,
        "Pod p is stuck",
        "describe pod p",
    ),
    "no class": (facts(), XEN, "The RuntimeClass xen-gpu does not exist", "kubectl apply -k kubernetes/overlays/xen"),
    "no xen node": (facts(runtime_classes={"xen-gpu": "xen-cri"}), XEN, "No node is labelled", "xen-enabled=true"),
    "no handler": (
        facts(runtime_classes={"xen-gpu": "xen-cri"}, nodes=[node(labels={"xen-enabled": "true"})]),
        XEN,
        "handler xen-cri",
        "containerd config dump",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("facts", "wanted", "title", "fix"), CASES.values(), ids=list(CASES))
def test_each_fault_is_found_with_its_reason_and_its_command(
    facts: dict[str, Any], wanted: Wanted, title: str, fix: str
) -> None:
    (finding,) = [each for each in found(facts, wanted) if title in each.title]
    assert finding.why
    assert fix in finding.fix_command


def test_a_cluster_that_cannot_be_reached_is_the_only_finding() -> None:
    facts = {
        "unreachable": {"what": "the cluster cannot be reached", "where": "https://x", "next": "kubectl cluster-info"}
    }
    (finding,) = found(facts)
    assert finding.status == "fail"
    assert finding.fix_command == "kubectl cluster-info"


def test_the_words_of_the_scheduler_are_kept() -> None:
    facts, wanted, *_ = CASES["pending"]
    assert "0/1 nodes" in found(facts, wanted)[0].detail


def test_a_gpu_node_s_own_taint_is_tolerated_by_pods_with_a_gpu() -> None:
    tainted = facts(nodes=[node(taints=["nvidia.com/gpu=present:NoSchedule"])])
    assert found(tainted, Wanted(gpus=1)) == []
    assert any(each.status == "fail" for each in found(tainted))


def test_what_a_quota_leaves() -> None:
    quota = {"metadata": {"name": "q"}, "status": {"hard": {"requests.cpu": "4"}, "used": {"requests.cpu": "3500m"}}}
    assert quota_facts(quota)["left"] == {"requests.cpu": 0.5}
