"""`k8s:RUNTIMECLASS` against an API server in memory: which class is refused, and what proves the runtime."""

from __future__ import annotations

from typing import Any

import pytest

from gputax.environments.environment import Described, Evidence
from gputax.environments.kubernetes import Kubernetes
from gputax.errors import PreflightError
from gputax.places import Places, environment_named
from gputax.plan.options import EnvironmentOptions
from tests.standins.kube_api import KubeApi, start_without_worker

NODE_KERNEL = "6.1.0-18-amd64"
# What the API requires of every node, whether a test needs it or not.
INFO = (
    "architecture", "bootID", "containerRuntimeVersion", "kubeProxyVersion", "kubeletVersion", "machineID",
    "operatingSystem", "osImage", "systemUUID",
)  # fmt: skip
CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"


@pytest.fixture(autouse=True)
def a_node(api: KubeApi) -> None:
    api.add_node("node-1", 0)
    unknown = dict.fromkeys(INFO, "")
    api.objects["/api/v1/nodes/node-1"]["status"]["nodeInfo"] = {**unknown, "kernelVersion": NODE_KERNEL}


def add_class(api: KubeApi, name: str, handler: str) -> None:
    api.objects[f"{CLASSES}/{name}"] = {
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": handler,
    }  # fmt: skip


def worker(pod: str, kernel: str, sandbox: str | None, **allowance: Any) -> Described:
    hints = {"own_pid_namespace": True}
    host = {"hostname": pod, "container_hints": hints, "kernel": kernel, "kernel_banner": kernel, "sandbox": sandbox}
    return Described({"host": host, "cpu_allowance": {"affinity": [0, 1], **allowance}, "devices": {}, "pid": 9})


def evidence(api: KubeApi, name: str, kernel: str, sandbox: str | None, **allowance: Any) -> Evidence:
    with Places(EnvironmentOptions(image="gputax:1", ready_timeout_s=10, cpus=1)) as places:
        environment = environment_named(name, places=places)
        assert isinstance(environment, Kubernetes)
        start_without_worker(environment)
        (pod,) = api.named("Pod")
        return environment.evidence(worker(pod, kernel, sandbox, **allowance))


def test_a_pod_of_the_class_is_proven_from_both_sides(api: KubeApi) -> None:
    add_class(api, "gvisor", "runsc")
    found = evidence(api, "k8s:gvisor", "4.19.0-gvisor", "gvisor", told_cpus=1.0)
    assert found.active, found.reasons
    assert found.layer == "gvisor"
    facts = ("runtime_class", "runtime", "runtime_program", "runtime_family", "host_kernel", "kernel")
    assert [found.fact(name) for name in facts] == [
        "gvisor", "gvisor", "runsc", "gvisor", NODE_KERNEL, "4.19.0-gvisor",
    ]  # fmt: skip


def test_a_pod_on_the_nodes_own_kernel_is_not_a_sandbox(api: KubeApi) -> None:
    add_class(api, "kata", "kata-qemu")
    found = evidence(api, "k8s:kata", NODE_KERNEL, None, quota_cpus=1.0)
    assert found.active is False
    assert "sees a virtual machine's kernel" in found.why_not


def test_a_hidden_limit_that_nobody_told_is_not_accepted(api: KubeApi) -> None:
    add_class(api, "gvisor", "runsc")
    found = evidence(api, "k8s:gvisor", "4.19.0-gvisor", "gvisor")
    assert "the sandbox hides its CPU limit; the worker was told nothing instead of 1" in found.reasons


@pytest.mark.parametrize(
    ("handler", "reason"),
    [("", "the cluster has no RuntimeClass 'gvisor'"), ("runc", "gvisor is runc, not gVisor")],
)
def test_a_class_that_is_missing_or_another_runtime_is_refused_before_there_is_a_pod(
    api: KubeApi, handler: str, reason: str
) -> None:
    if handler:
        add_class(api, "gvisor", handler)
    with Places(EnvironmentOptions(image="gputax:1", ready_timeout_s=10, cpus=1)) as places:
        environment = environment_named("k8s:gvisor", places=places)
        with pytest.raises(PreflightError, match=reason) as raised:
            environment.start()
    assert "get runtimeclass" in raised.value.next_step
    assert api.named("Pod") == []


def test_the_worker_is_told_its_limit(api: KubeApi) -> None:
    add_class(api, "gvisor", "runsc")
    with Places(EnvironmentOptions(image="gputax:1", cpus=3)) as places:
        environment = environment_named("k8s:gvisor", places=places)
        assert isinstance(environment, Kubernetes)
        assert environment._variables()["GPUTAX_LIMIT_CPUS"] == "3"
        assert environment.plan().runtime_class == "gvisor"
