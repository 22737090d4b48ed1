"""Tenants in pods against an API server in memory: distinct, of one size, gone before a switch and after the end."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gputax.environments.environment import Described
from gputax.environments.kubernetes import Kubernetes
from gputax.errors import Interrupted, PreflightError, UsageError
from gputax.kubernetes.objects import pod
from gputax.plan.cells import Setup
from gputax.plan.options import EnvironmentOptions
from gputax.plan.techniques import TECHNIQUES
from gputax.sharing.kubernetes.place import KubernetesShared
from gputax.sharing.place import Tenant
from tests.standins.gpu_node import CONFIG_MAP, NODE, GpuNode
from tests.standins.kube_api import KubeApi, play_pod

SETUP = Setup("resnet50")
MICRO = Setup("micro:operation", engine="driver", device="software")
TIME_SLICING, MPS, PROXY = (TECHNIQUES[name] for name in ("time-slicing", "mps", "proxy"))


@pytest.fixture
def place(api: KubeApi) -> Iterator[KubernetesShared]:
    made = KubernetesShared(EnvironmentOptions(image="gputax:1", ready_timeout_s=10))
    yield made
    made.close()


def silent(text: str) -> None:
    pass


def kubernetes(tenant: Tenant) -> Kubernetes:
    assert isinstance(tenant.environment, Kubernetes)
    return tenant.environment


def made(place: KubernetesShared, tenants: list[Tenant]) -> list[str]:
    """Make the tenants' pods as an experiment does: all at once, each in a thread."""
    with ThreadPoolExecutor(len(tenants)) as threads:
        ready = threads.map(lambda tenant: place._pods.ready(kubernetes(tenant).plan(), 10), tenants)
        return [each.name for each in ready]


def test_tenants_are_pods_of_their_own_on_one_node_and_of_one_size(api: KubeApi, place: KubernetesShared) -> None:
    GpuNode(api)
    switched = place.switch(TIME_SLICING, 7, silent)
    assert switched.facts["labels"]["nvidia.com/gpu.replicas"] == "7"
    tenants = place.tenants(TIME_SLICING, 7, 7, SETUP)
    names = made(place, tenants)
    assert len(set(names)) == 7
    live = [api.objects[f"/api/v1/namespaces/gputax/pods/{name}"] for name in names]
    assert {each["spec"]["nodeName"] for each in live} == {NODE}
    (resources,) = {str(each["spec"]["containers"][0]["resources"]) for each in live}
    # Four CPUs for seven: 4000 // 7 in steps of ten.
    assert "'cpu': '570m'" in resources
    assert "'nvidia.com/gpu.shared': '1'" in resources
    assert {each["metadata"]["labels"]["app.kubernetes.io/component"] for each in live} == {"tenant"}
    assert {each["metadata"]["labels"]["gputax.dev/technique"] for each in live} == {"time-slicing"}
    watches = [each for each in api.requests if each == "GET /api/v1/namespaces/gputax/pods"]
    assert len(watches) == 3, "two lists for what earlier runs left, and one watch for all pods"


def test_a_tenant_serves_metrics_and_knows_itself(api: KubeApi, place: KubernetesShared) -> None:
    GpuNode(api)
    place.switch(MPS, 3, silent)
    (tenant,) = place.tenants(MPS, 1, 3, SETUP)
    container = pod(kubernetes(tenant).plan())["spec"]["containers"][0]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert variables["GPUTAX_METRICS_PORT"] == "8000"
    assert variables["GPUTAX_TECHNIQUE"] == "mps"
    assert "GPUTAX_POD" in variables
    assert container["ports"] == [{"name": "prometheus", "containerPort": 8000}]
    assert tenant.entitlement.text == "33 % of the SMs, 26.7 GB"
    assert (tenant.setup.threads, tenant.setup.engine) == (1, "onnx:spin=false")
    assert tenant.environment.name == "k8s+mps"


def test_the_pods_of_fewer_tenants_are_those_of_more(api: KubeApi, place: KubernetesShared) -> None:
    GpuNode(api)
    place.switch(TIME_SLICING, 3, silent)
    three = made(place, place.tenants(TIME_SLICING, 3, 3, SETUP))
    assert made(place, place.tenants(TIME_SLICING, 1, 3, SETUP)) == three[:1]
    with pytest.raises(UsageError, match="4 tenants, but the device has only 3 parts"):
        place.tenants(TIME_SLICING, 4, 3, SETUP)


def test_no_pod_of_ours_is_left_when_the_node_is_switched(api: KubeApi, place: KubernetesShared) -> None:
    gpu = GpuNode(api)
    place.switch(TIME_SLICING, 3, silent)
    made(place, place.tenants(TIME_SLICING, 3, 3, SETUP))
    seen: list[list[str]] = []
    follow = api.on_change

    def look(path: str, live: dict[str, Any]) -> None:
        if path == gpu.path and live["metadata"]["labels"].get("nvidia.com/device-plugin.config") == "gputax-mps-3":
            seen.append(api.named("Pod"))
        follow(path, live)

    api.on_change = look
    place.switch(MPS, 3, silent)
    assert seen[0] == []


def test_at_the_end_nothing_is_left_and_what_was_applied_is_kept(api: KubeApi) -> None:
    gpu = GpuNode(api)
    before = gpu.labels
    place = KubernetesShared(EnvironmentOptions(ready_timeout_s=10))
    place.switch(MPS, 3, silent)
    (name,) = made(place, place.tenants(MPS, 1, 3, SETUP))
    place.close()
    place.close()
    assert (gpu.labels, gpu.annotations, api.named("Pod")) == (before, {}, [])
    assert CONFIG_MAP not in api.objects
    files = place.files()
    assert f"kubernetes/{name}.yaml" in files
    assert '"nvidia.com/device-plugin.config": null' in files["kubernetes/node-labels-before.json"]
    assert "gputax-mps-3" in files["kubernetes/device-plugin-config.yaml"]
    assert '"sm_percent": 33' in files["kubernetes/node-mps.json"]


def test_a_pod_that_a_thread_was_about_to_make_is_not_made_after_the_end(api: KubeApi, place: KubernetesShared) -> None:
    GpuNode(api)
    place.switch(TIME_SLICING, 3, silent)
    (tenant,) = place.tenants(TIME_SLICING, 1, 3, SETUP)
    plan = kubernetes(tenant).plan()
    place._pods.end_making()
    with pytest.raises(Interrupted, match="no more pods are created"):
        place._pods.ready(plan, 5)
    assert api.named("Pod") == []


def test_a_node_without_room_is_told(api: KubeApi, place: KubernetesShared) -> None:
    gpu = GpuNode(api)
    gpu.set({}, {"cpu": "200m"})
    place.switch(TIME_SLICING, 7, silent)
    with pytest.raises(PreflightError, match=r"7 tenants do not fit: 0.20 CPUs"):
        place.tenants(TIME_SLICING, 7, 7, SETUP)


def test_the_technique_s_evidence_uses_what_the_node_shows_at_the_end(api: KubeApi, place: KubernetesShared) -> None:
    gpu = GpuNode(api)
    place.switch(TIME_SLICING, 3, silent)
    tenants = place.tenants(TIME_SLICING, 3, 3, SETUP)
    names = made(place, tenants)
    proofs, workers = [], []
    for tenant, name in zip(tenants, names, strict=True):
        environment = kubernetes(tenant)
        environment._pod = place._pods.ready(environment.plan(), 5)
        host = {"hostname": name, "container_hints": {"own_pid_namespace": True}, "visible_devices": "GPU-1"}
        described = Described({"host": host, "cpu_allowance": {"quota_cpus": 1.0}, "devices": {}})
        proofs.append(environment.evidence(described))
        workers.append(described)
    shown = place.evidence(TIME_SLICING, proofs, workers)
    assert shown.active, shown.reasons
    assert shown.fact("reaches_device") is False
    assert "says nothing about a GPU under time-slicing" in shown.warning
    watch = place._node._watch(NODE)
    since = watch.position()
    gpu.set({"nvidia.com/gpu.sharing-strategy": "none"}, {})
    strategy = "nvidia.com/gpu.sharing-strategy"
    assert watch.wait_for(lambda node: "" if node.label(strategy) == "none" else "not yet", since, 10, silent) == ""
    lost = place.evidence(TIME_SLICING, proofs, workers)
    assert lost.active is False
    assert "the node no longer offers it: nvidia.com/gpu.sharing-strategy is none" in lost.reasons[0]


def test_tenants_of_the_proxy_have_no_device_and_the_node_is_put_back_for_it(
    api: KubeApi, place: KubernetesShared
) -> None:
    gpu = GpuNode(api)
    before = gpu.labels
    place.switch(MPS, 3, silent)
    gpu.set({}, {"gputax.dev/vgpu": "2"})
    with pytest.raises(PreflightError, match="3 tenants need as many places behind a GPU proxy, but 2 are offered"):
        place.switch(PROXY, 3, silent)
    gpu.set({}, {"gputax.dev/vgpu": "16"})
    place.switch(PROXY, 3, silent)
    assert gpu.labels == before
    tenants = place.tenants(PROXY, 3, 3, MICRO)
    plans = [kubernetes(tenant).plan() for tenant in tenants]
    assert all(plan.tenant_of_proxy and not plan.size.gpus for plan in plans)
    assert {plan.node for plan in plans} == {NODE}, "all behind one proxy"
    assert len({repr(plan) for plan in plans}) == 3
    with pytest.raises(UsageError, match="forwards the CUDA driver API"):
        place.tenants(PROXY, 1, 3, SETUP)


def test_threads_that_ask_for_equal_pods_at_once_share_one(api: KubeApi, place: KubernetesShared) -> None:
    GpuNode(api)
    place.switch(TIME_SLICING, 3, silent)
    (tenant,) = place.tenants(TIME_SLICING, 1, 3, SETUP)
    assert len(set(made(place, [tenant] * 5))) == 1
    assert len(api.named("Pod")) == 1


def test_a_pod_that_the_node_rejects_while_its_devices_change_is_made_again(
    api: KubeApi, place: KubernetesShared, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(place._pods.clock, "sleep", pauses.append)
    GpuNode(api)
    place.switch(TIME_SLICING, 3, silent)
    follow = api.on_change
    rejected: list[str] = []

    def reject_the_first(path: str, live: dict[str, Any]) -> None:
        follow(path, live)
        if "/pods/" in path and not rejected:
            rejected.append(path)
            api.merge(path, {"status": {"phase": "Failed", "reason": "UnexpectedAdmissionError", "conditions": []}})
        elif "/pods/" in path and path not in rejected and "status" not in live:
            play_pod(live)
            api.tell("MODIFIED", path)

    api.plays_pods = False
    api.on_change = reject_the_first
    (name,) = made(place, place.tenants(TIME_SLICING, 1, 3, SETUP))
    assert pauses == [1]
    assert not rejected[0].endswith(name)
    assert api.named("Pod") == [name]


def test_a_node_that_lost_the_technique_is_brought_back_to_it_without_pods(
    api: KubeApi, place: KubernetesShared
) -> None:
    gpu = GpuNode(api)
    place.switch(TIME_SLICING, 3, silent)
    made(place, place.tenants(TIME_SLICING, 2, 3, SETUP))
    gpu.fault = "never"
    api.merge(gpu.path, {"metadata": {"labels": {"nvidia.com/device-plugin.config": None}}})
    gpu.fault = ""
    place.switch(TIME_SLICING, 3, silent)
    assert gpu.labels["nvidia.com/device-plugin.config"] == "gputax-time-slicing-3"
    assert api.named("Pod") == []
