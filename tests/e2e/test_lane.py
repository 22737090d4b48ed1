"""The lane itself is real: pods run, GPUs are scheduled and allocated, RuntimeClasses route."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from e2e import cluster as lane
from e2e.device_offer import gpu_uuid
from e2e.processes import ClusterError
from tests.e2e.real_cluster import RealCluster, eventually
from tests.e2e.shared_node import write_whole

pytestmark = pytest.mark.e2e


def pod(name: str, image: str, command: list[str], gpus: int = 0, **spec: Any) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": image, "command": command}
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container], **spec},
    }


@pytest.fixture
def pods(real_cluster: RealCluster) -> Iterator[RealCluster]:
    yield real_cluster
    real_cluster.kubectl("delete", "pods", "--all", "-n", "default", "--grace-period=0", "--force")


def phase(cluster: RealCluster, name: str, wanted: str) -> bool:
    return bool(cluster.get("pod", name, "-n", "default")["status"]["phase"] == wanted)


def test_a_pod_gets_its_gpus_as_variables_and_device_nodes(pods: RealCluster) -> None:
    script = "ls /dev/nvidia*; echo $NVIDIA_VISIBLE_DEVICES"
    pods.apply(pod("two-gpus", pods.image, ["sh", "-c", script], gpus=2))
    eventually("the pod ends", lambda: phase(pods, "two-gpus", "Succeeded"))
    nodes, uuids = (
        pods.kubectl("logs", "two-gpus", "-n", "default").splitlines()[:-1],
        (pods.kubectl("logs", "two-gpus", "-n", "default").splitlines()[-1].split(",")),
    )
    assert len(nodes) == len(uuids) == 2
    assert {gpu_uuid(int(node.removeprefix("/dev/nvidia"))) for node in nodes} == set(uuids)


def test_an_unhealthy_gpu_is_taken_off_the_node_and_comes_back(real_cluster: RealCluster) -> None:
    layout = real_cluster.own
    write_whole(layout.unhealthy_devices, f"{gpu_uuid(1)}\n")
    try:
        eventually("three GPUs", lambda: lane.allocatable_gpus(layout) == 3, 20)
    finally:
        write_whole(layout.unhealthy_devices, "")
    eventually("four GPUs", lambda: lane.allocatable_gpus(layout) == 4, 20)


def test_a_runtime_class_routes_to_its_handler_with_its_overhead(pods: RealCluster) -> None:
    layout = pods.own
    pods.apply(
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": "stand-in"},
            "handler": "xen-cri",
            "overhead": {"podFixed": {"memory": "256Mi", "cpu": "100m"}},
        }
    )
    calls_before = layout.runtime_calls.read_text()
    pods.apply(pod("plain", pods.image, ["true"]))
    eventually("the plain pod ends", lambda: phase(pods, "plain", "Succeeded"))
    assert layout.runtime_calls.read_text() == calls_before

    pods.apply(pod("routed", pods.image, ["true"], runtimeClassName="stand-in"))
    eventually("the routed pod ends", lambda: phase(pods, "routed", "Succeeded"))
    calls = layout.runtime_calls.read_text().removeprefix(calls_before)
    assert "xen-cri" in calls
    assert " create " in calls
    assert pods.get("pod", "routed", "-n", "default")["spec"]["overhead"] == {"memory": "256Mi", "cpu": "100m"}
    pods.kubectl("delete", "runtimeclass", "stand-in")


def test_a_second_cluster_is_refused_while_one_runs(real_cluster: RealCluster) -> None:
    assert real_cluster.own
    with pytest.raises(ClusterError, match="already runs"):
        lane.up()
