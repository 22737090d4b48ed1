"""One tenant of a GPU that its node shares already, against an API server in memory: proven, and the node untouched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gputax.environments.environment import Described
from gputax.errors import PreflightError, UsageError
from gputax.places import Places, environment_named
from gputax.plan.options import EnvironmentOptions
from gputax.sharing.kubernetes.environment import KubernetesTechnique
from tests.standins.gpu_node import NODE, GpuNode
from tests.standins.kube_api import KubeApi, play_pod, start_without_worker

SHARED = {"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.replicas": "4"}
Started = Callable[[str], KubernetesTechnique]


@pytest.fixture
def shared(api: KubeApi) -> GpuNode:
    """A node that its owner shares by time-slicing, and one without a GPU."""
    api.add_node("a-node-without", 0)
    node = GpuNode(api, labels=SHARED)
    node.set({}, {"nvidia.com/gpu": None, "nvidia.com/gpu.shared": "4"})
    return node


@pytest.fixture
def started() -> Iterator[Started]:
    with Places(EnvironmentOptions(image="gputax:1", ready_timeout_s=10)) as places:

        def start(name: str) -> KubernetesTechnique:
            environment = environment_named(name, places=places)
            assert isinstance(environment, KubernetesTechnique)
            start_without_worker(environment)
            return environment

        yield start


def only_pod(api: KubeApi) -> dict[str, Any]:
    (path,) = [path for path in api.objects if "/namespaces/gputax/pods/" in path]
    return dict(api.objects[path])


def described(pod: dict[str, Any], visible: str = "GPU-1", **devices: Any) -> Described:
    cpus = float(pod["spec"]["containers"][0]["resources"]["limits"]["cpu"])
    host = {"hostname": pod["metadata"]["name"], "visible_devices": visible}
    allowance = {"quota_cpus": cpus, "affinity": [0]}
    return Described({"host": host, "cpu_allowance": allowance, "devices": devices})


def test_the_pod_gets_one_share_on_the_node_that_has_them(api: KubeApi, shared: GpuNode, started: Started) -> None:
    before = shared.labels
    environment = started("k8s+time-slicing")
    pod = only_pod(api)
    assert pod["spec"]["nodeName"] == NODE
    assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu.shared"] == "1"
    evidence = environment.evidence(described(pod, cuda={"name": "NVIDIA A100"}))
    assert evidence.active, evidence.reasons
    assert (evidence.layer, evidence.warning) == ("time-slicing", "")
    assert evidence.fact("technique")["limits"]["replicas"] == 4
    assert (shared.labels, shared.annotations) == (before, {}), "the node is as its owner left it"
    assert not [request for request in api.requests if "/nodes/" in request and not request.startswith("GET")]


def test_work_that_reached_no_gpu_says_so(api: KubeApi, shared: GpuNode, started: Started) -> None:
    evidence = started("k8s+time-slicing").evidence(described(only_pod(api)))
    assert evidence.warning == "the work ran on the CPU: this says nothing about a GPU under time-slicing"


@pytest.mark.parametrize(
    ("worker", "reason"),
    [
        ({"mps": {"pipe_directory": "/mps"}}, "used MPS"),
        ({"visible": "void"}, "unknown which GPU"),
        ({"gpus": [{"uuid": "GPU-1", "compute_mode": "exclusive-process"}]}, "compute mode is exclusive-process"),
    ],
)
def test_a_technique_that_the_worker_does_not_see_gives_no_number(
    api: KubeApi, shared: GpuNode, started: Started, worker: dict[str, Any], reason: str
) -> None:
    evidence = started("k8s+time-slicing").evidence(described(only_pod(api), **worker))
    assert evidence.active is False
    assert reason in evidence.why_not


def test_a_node_that_was_switched_meanwhile_or_that_others_use_gives_no_number(
    api: KubeApi, shared: GpuNode, started: Started
) -> None:
    environment = started("k8s+time-slicing")
    worker = described(only_pod(api))
    stranger: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "trainer", "namespace": "team"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu.shared": "1"}}}]},
    }
    play_pod(stranger)
    stranger["spec"]["nodeName"] = NODE
    path = "/api/v1/namespaces/team/pods/trainer"
    api.put(path, stranger)
    assert environment.evidence(worker).reasons == ("other pods use the same GPU: team/trainer",)
    api.drop(path)
    shared.set({"nvidia.com/gpu.sharing-strategy": "none"}, {})
    (reason,) = environment.evidence(worker).reasons
    assert "the node no longer offers it: nvidia.com/gpu.sharing-strategy is none" in reason


def test_a_technique_that_no_node_has_is_refused_with_the_command_that_switches(
    api: KubeApi, shared: GpuNode, started: Started
) -> None:
    with pytest.raises(PreflightError) as refused:
        started("k8s+mps")
    assert f"{NODE}: nvidia.com/gpu.sharing-strategy is time-slicing, not mps" in refused.value.what
    assert "gputax share --env k8s --tech mps" in refused.value.next_step
    assert not api.named("Pod")


def test_a_pod_cannot_prove_its_nodes_technique_from_within() -> None:
    with pytest.raises(UsageError, match="cannot prove from inside that its node offers mps"):
        environment_named("k8s+mps", options=EnvironmentOptions(inside=True))
