"""A tenant of the node's GPU proxy, against an API server in memory: it asks for a place, and proves who served it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gputax.environments.environment import Described
from gputax.environments.image import driver_variables
from gputax.environments.kubernetes import Kubernetes, KubernetesProxy
from gputax.errors import PreflightError, UsageError
from gputax.kubernetes.client import Cluster
from gputax.places import Places, environment_named
from gputax.plan.driver import DriverChoice
from gputax.plan.options import EnvironmentOptions
from tests.standins.kube_api import KubeApi, start_without_worker

SOFTWARE = DriverChoice("software")
BACKEND = "/opt/gputax/native/software/libcuda.so.1"
STATUS = {
    "pid": 1, "backend": BACKEND, "device": "gputax software device", "wait_policy": "auto",
    "tenants": [{"id": 4, "pid": 0, "calls": {"cuInit": 1}}],
}  # fmt: skip


@pytest.fixture(autouse=True)
def a_node(api: KubeApi) -> None:
    api.add_node("node-1", 0)


def started(places: Places, driver: DriverChoice) -> KubernetesProxy:
    environment = environment_named("k8s+proxy", driver, places)
    assert isinstance(environment, KubernetesProxy)
    start_without_worker(environment)
    return environment


def described(pod: str, **changes: Any) -> Described:
    vgpu = {"tenant": 4, "transport": "shm", "backend": BACKEND, "device": STATUS["device"], "calls": {"cuInit": 1}}
    driver = {"library": "/opt/gputax-vgpu/libcuda.so.1", "pid": 9, "device_nodes": [], "vgpu": vgpu, **changes}
    host = {"hostname": pod, "container_hints": {"own_pid_namespace": True}}
    allowance = {"quota_cpus": 1.0, "affinity": [0]}
    return Described({"host": host, "cpu_allowance": allowance, "devices": {}, "driver": driver, "pid": 9})


def evidence_of(
    api: KubeApi, monkeypatch: pytest.MonkeyPatch, driver: DriverChoice, status: dict[str, Any], **changes: Any
) -> tuple[dict[str, Any], list[tuple[str, tuple[str, ...]]]]:
    """Return the evidence, and the programs that were run in pods for it."""
    asked: list[tuple[str, tuple[str, ...]]] = []

    def run_in_pod(self: Cluster, pod: str, command: tuple[str, ...], **_: Any) -> str:
        asked.append((pod, tuple(command)))
        return json.dumps(status)

    monkeypatch.setattr(Cluster, "run_in_pod", run_in_pod)
    with Places(EnvironmentOptions(image="gputax:1", ready_timeout_s=10, cpus=1)) as places:
        environment = started(places, driver)
        (pod,) = api.named("Pod")
        return environment.evidence(described(pod, **changes)).to_dict(), asked


def test_its_pod_asks_for_a_place_and_for_nothing_of_the_node(api: KubeApi) -> None:
    with Places(EnvironmentOptions(image="gputax:1", ready_timeout_s=10)) as places:
        started(places, SOFTWARE)
        pods: list[dict[str, Any]] = [each for each in api.objects.values() if each["kind"] == "Pod"]
    (pod,) = pods
    assert pod["metadata"]["namespace"] == "gputax", "no pod is made for the proxy"
    resources = pod["spec"]["containers"][0]["resources"]
    assert resources["requests"] == resources["limits"]
    assert resources["limits"]["gputax.dev/vgpu"] == "1"
    assert "nvidia.com/gpu" not in resources["limits"]
    assert "hostPath" not in json.dumps(pod)


def test_the_proxys_count_is_read_in_the_tenants_own_pod(api: KubeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence, asked = evidence_of(api, monkeypatch, SOFTWARE, STATUS)
    assert evidence["active"] is True, evidence
    assert evidence["calls_by_worker"] == evidence["calls_by_proxy"] == 1
    ((pod, command),) = asked
    assert pod.startswith("gputax-worker-")
    assert command == ("gputax", "proxy", "status", "--json", "--socket", "/run/gputax-proxy/proxy.sock")


@pytest.mark.parametrize(
    ("device", "backend", "reason"),
    [
        ("cuda", BACKEND, "the node's proxy serves the software device, not a GPU"),
        ("software", "/usr/lib/libcuda.so.1", "the proxy's backend is /usr/lib/libcuda.so.1"),
    ],
)
def test_another_device_than_the_one_asked_for_is_not_accepted(
    api: KubeApi, monkeypatch: pytest.MonkeyPatch, device: str, backend: str, reason: str
) -> None:
    evidence, _ = evidence_of(api, monkeypatch, DriverChoice(device), {**STATUS, "backend": backend})
    assert evidence["active"] is False
    assert any(reason in each for each in evidence["reasons"]), evidence["reasons"]


def test_a_library_of_the_image_instead_of_the_plugins_is_seen(api: KubeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence, _ = evidence_of(api, monkeypatch, SOFTWARE, STATUS, library="/opt/gputax/native/vgpu/libcuda.so.1")
    assert evidence["active"] is False
    assert "not libvgpu (/opt/gputax-vgpu/libcuda.so.1)" in evidence["reasons"][0]


def test_a_cluster_without_a_proxy_says_how_to_install_one(api: KubeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    from gputax.kubernetes import watch

    monkeypatch.setattr(watch, "UNSCHEDULABLE_GRACE_S", 0.0)
    api.plays_pods = False
    condition = {
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 Insufficient gputax.dev/vgpu.",
    }  # fmt: skip

    def never(path: str, live: dict[str, Any]) -> None:
        if "/pods/" in path and "status" not in live:
            api.merge(path, {"status": {"phase": "Pending", "conditions": [condition]}})

    api.on_change = never
    with (
        Places(EnvironmentOptions(image="gputax:1", ready_timeout_s=10)) as places,
        pytest.raises(PreflightError) as raised,
    ):
        started(places, SOFTWARE)
    assert "kubectl apply -k kubernetes/proxy/gpu" in raised.value.next_step


def test_a_library_of_this_machine_is_refused(api: KubeApi) -> None:
    with (
        Places(EnvironmentOptions(image="gputax:1")) as places,
        pytest.raises(UsageError, match="not visible in a pod"),
    ):
        started(places, DriverChoice("auto", "/tmp/libcuda.so.1"))


def test_a_container_takes_programs_on_the_cuda_runtime_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUTAX_CUDA_RUNTIME", raising=False)
    assert "GPUTAX_CUDA_RUNTIME" not in driver_variables(SOFTWARE, 0)
    monkeypatch.setenv("GPUTAX_CUDA_RUNTIME", "1")
    assert driver_variables(SOFTWARE, 0)["GPUTAX_CUDA_RUNTIME"] == "1"
    assert driver_variables(DriverChoice("cuda"), 1) == {}


def test_a_software_device_in_a_container_is_as_fast_as_the_one_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTAX_SOFT_COPY_GBPS", "4.5")
    assert driver_variables(SOFTWARE, 0)["GPUTAX_SOFT_COPY_GBPS"] == "4.5"
    assert driver_variables(DriverChoice("cuda"), 1) == {}


def test_nothing_is_said_about_a_device_that_the_proxy_chooses(api: KubeApi) -> None:
    with Places(EnvironmentOptions(image="gputax:1")) as places:
        behind, without = (environment_named(name, DriverChoice("auto"), places) for name in ("k8s+proxy", "k8s"))
        assert isinstance(behind, KubernetesProxy)
        assert isinstance(without, Kubernetes)
        assert "chose the software device" in without.note
        assert behind.note == ""


@pytest.mark.parametrize("name", ["k8s+proxy", "k8s"])
def test_an_engine_on_the_cuda_runtime_is_refused_before_there_is_a_pod(
    api: KubeApi, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delenv("GPUTAX_CUDA_RUNTIME", raising=False)
    choice = DriverChoice("software", runtime=True)
    with Places(EnvironmentOptions(image="gputax:1", ready_timeout_s=10, cpus=1)) as places:
        with pytest.raises(UsageError, match="only if asked to"):
            start_without_worker(environment_named(name, choice, places))
        assert not [path for path in api.objects if "/pods/" in path]
        monkeypatch.setenv("GPUTAX_CUDA_RUNTIME", "1")
        start_without_worker(environment_named(name, choice, places))
        assert [path for path in api.objects if "/pods/" in path]
