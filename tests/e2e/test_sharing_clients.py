"""`gputax client` in the pods of an overlay, as users have it: kubectl alone, and their own query to Prometheus."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from e2e.device_offer import gpu_uuid
from e2e.layout import REPOSITORY
from e2e.prometheus import query
from tests.e2e.real_cluster import NAMESPACE, eventually
from tests.e2e.shared_node import CONFIG_LABEL, SharedNode

pytestmark = pytest.mark.e2e

USERS_QUERY = "avg(sum(rate(inference_time_seconds_sum[2m])) / sum(rate(inference_time_seconds_count[2m])))"


def test_the_overlay_runs_clients_that_prometheus_scrapes(shared: SharedNode, tmp_path: Path) -> None:
    cluster = shared.cluster
    write_overlay(tmp_path, cluster.image)
    shared.label(CONFIG_LABEL, "gputax-time-slicing-7")
    try:
        shared.offers("nvidia.com/gpu.shared", 7)
        cluster.kubectl("apply", "-k", str(tmp_path))
        cluster.kubectl("rollout", "status", "deployment/gputax-client", "-n", NAMESPACE, "--timeout=120s")
        running = 'inference_time_seconds_count{pod=~"gputax-client-.*"} > 0'
        eventually("both tenants are scraped", lambda: len(query(running)) == 2, 60)
        infos = [each["metric"] for each in query('gputax_tenant_info{pod=~"gputax-client-.*"}')]
        assert {info["technique"] for info in infos} == {"time-slicing"}
        assert {info["device"] for info in infos} == {"cpu"}
        assert {info["device_id"] for info in infos} == {gpu_uuid(0)}
        eventually("the users' query has two scrapes of each", lambda: query(USERS_QUERY), 10)
        theirs = float(query(USERS_QUERY)[0]["value"][1])
        total = "sum(inference_time_seconds_sum) / sum(inference_time_seconds_count)"
        assert theirs == pytest.approx(float(query(total)[0]["value"][1]), rel=0.25)
    finally:
        cluster.kubectl("delete", "-k", str(tmp_path), "--ignore-not-found", "--wait")
        shared.label(CONFIG_LABEL, None)


def write_overlay(directory: Path, image: str) -> None:
    """Write what a user of a node without a GPU writes over the overlay: the device, and two tenants that fit."""
    name, _, tag = image.rpartition(":")
    container = "/spec/template/spec/containers/0"
    small = {"cpu": "900m", "memory": "1Gi", "nvidia.com/gpu.shared": "1"}
    change = [
        {"op": "test", "path": f"{container}/args/3", "value": "cuda"},
        {"op": "replace", "path": f"{container}/args/3", "value": "cpu"},
        {"op": "replace", "path": f"{container}/resources", "value": {"requests": small, "limits": small}},
        {"op": "replace", "path": "/spec/replicas", "value": 2},
    ]
    data = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(REPOSITORY / "kubernetes/sharing/overlays/ts", directory.resolve())],
        "images": [{"name": "gputax", "newName": name, "newTag": tag}],
        "patches": [{"target": {"kind": "Deployment"}, "patch": json.dumps(change)}],
    }
    (directory / "kustomization.yaml").write_text(json.dumps(data))
