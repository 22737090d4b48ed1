"""The GPU proxy of the manifests on the node, with the software device: installed as a user would, and taken away."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.layout import REPOSITORY
from gputax.kubernetes.objects import PLACES, PROXY_NAMESPACE, VGPU_RESOURCE
from tests.e2e.real_cluster import RealCluster, eventually

# A device that takes its time, as GPUs do: behind one that takes none, any proxy costs many times the operation.
DEVICE = {"GPUTAX_SOFT_KERNEL_US": "125", "GPUTAX_SOFT_COPY_GBPS": "4.5"}
PROXY_PODS = ("-n", PROXY_NAMESPACE, "-l", "app.kubernetes.io/component=proxy")


def kustomization(directory: Path, image: str, device: Mapping[str, str] = DEVICE) -> None:
    """Write what a user writes to install the proxy with an image and a device of theirs."""
    name, _, tag = image.rpartition(":")
    variables = "/spec/template/spec/containers/0/env/-"
    change: list[dict[str, Any]] = [
        {"op": "add", "path": variables, "value": {"name": each, "value": value}} for each, value in device.items()
    ]
    data = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(REPOSITORY / "kubernetes/proxy/software", directory.resolve())],
        "images": [{"name": "gputax", "newName": name, "newTag": tag}],
        "patches": [{"target": {"kind": "DaemonSet"}, "patch": json.dumps(change)}],
    }
    (directory / "kustomization.yaml").write_text(json.dumps(data))


def places_offered(cluster: RealCluster) -> int:
    """Return how many places the nodes offer."""
    nodes = cluster.get("nodes")["items"]
    return sum(int(node["status"]["allocatable"].get(VGPU_RESOURCE, 0)) for node in nodes)


@contextmanager
def installed_proxy(cluster: RealCluster, directory: Path, device: Mapping[str, str] = DEVICE) -> Iterator[RealCluster]:
    """Install it, wait until the node offers its places, and take it away."""
    kustomization(directory, cluster.image, device)
    cluster.kubectl("apply", "-k", str(directory))
    try:
        cluster.kubectl("rollout", "status", "daemonset/gputax-proxy", "-n", PROXY_NAMESPACE, "--timeout=60s")
        eventually("the node offers the places", lambda: places_offered(cluster) == PLACES, 60)
        yield cluster
    finally:
        cluster.kubectl("delete", "namespace", PROXY_NAMESPACE, "--wait")


def proxy_pod(cluster: RealCluster) -> dict[str, Any]:
    """Return the proxy's pod as it is now."""
    (pod,) = cluster.get("pods", *PROXY_PODS)["items"]
    found: dict[str, Any] = pod
    return found


def operators_status(cluster: RealCluster) -> dict[str, Any]:
    """Return the proxy's status as the operator of the cluster reads it."""
    words = ("gputax", "proxy", "status", "--json", "--socket", "/run/gputax-proxy/proxy.sock")
    name = proxy_pod(cluster)["metadata"]["name"]
    answer: dict[str, Any] = json.loads(
        cluster.kubectl("exec", "-n", PROXY_NAMESPACE, name, "-c", "gputax", "--", *words)
    )
    return answer


def kubelet_restarted(cluster: RealCluster) -> None:
    """Stop the kubelet and start it again; it wipes the directory of the device plugins."""
    from e2e import cluster as lane

    lane.stop_daemon(cluster.own, "kubelet")
    lane.start_daemon(cluster.own, "kubelet")
    eventually("the node is Ready", lambda: lane.node_is_ready(cluster.own), 60)
