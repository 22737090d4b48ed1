"""kubernetes/ with kubectl alone: every overlay is taken by a real API server, and the Job's log is a result."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.layout import REPOSITORY
from tests.e2e.real_cluster import NAMESPACE, RealCluster, eventually

pytestmark = pytest.mark.e2e

JOB = "gputax-benchmark"
CLIENT = "gputax-client"
OVERLAYS = {
    **dict.fromkeys(("base", "overlays/baseline", "overlays/gpu-proxy", "overlays/xen"), f"job.batch/{JOB}"),
    **{
        f"sharing/overlays/{path.name}": f"deployment.apps/{CLIENT}"
        for path in sorted((REPOSITORY / "kubernetes/sharing/overlays").iterdir())
    },
}
# What a technique needs beyond `restricted`, and says in its file: the host's IPC for these MPS.
PRIVILEGED = ("sharing/overlays/gke-mps", "sharing/overlays/nos-mps")


def kustomization(directory: Path, source: str, image: str, arguments: list[str]) -> Path:
    """Write what a user writes to run an overlay with an image and arguments of theirs."""
    name, _, tag = image.rpartition(":")
    change = [{"op": "add", "path": "/spec/template/spec/containers/0/command/-", "value": word} for word in arguments]
    data: dict[str, Any] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(REPOSITORY / "kubernetes" / source, directory.resolve())],
        "images": [{"name": "gputax", "newName": name, "newTag": tag}],
        "patches": [{"target": {"kind": "Job"}, "patch": json.dumps(change)}] if change else [],
    }
    (directory / "kustomization.yaml").write_text(json.dumps(data))
    return directory


@pytest.fixture
def no_namespace(real_cluster: RealCluster) -> Iterator[RealCluster]:
    """Begin and end without our namespace: the manifests bring it themselves."""
    delete = ("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait")
    real_cluster.kubectl(*delete)
    yield real_cluster
    real_cluster.kubectl(*delete)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_api_server_takes_every_object_of_an_overlay(
    real_cluster: RealCluster, namespace: str, overlay: str
) -> None:
    source = str(REPOSITORY / "kubernetes" / overlay)
    # A dry run keeps nothing, so the namespace of the overlay must be there before; unknown fields are errors.
    done = real_cluster.try_kubectl("apply", "-k", source, "--dry-run=server", "--validate=strict")
    assert done.returncode == 0, done.stderr
    assert f"namespace/{namespace}" in done.stdout
    assert OVERLAYS[overlay] in done.stdout
    assert "unknown field" not in done.stderr
    if overlay not in PRIVILEGED:
        assert "violate PodSecurity" not in done.stderr


@pytest.mark.parametrize("device", ["gpu", "software"])
def test_the_api_server_takes_every_object_of_the_proxy(real_cluster: RealCluster, device: str) -> None:
    base, source = (str(REPOSITORY / "kubernetes/proxy" / name) for name in ("base", device))
    real_cluster.kubectl("apply", "-k", base)  # a dry run keeps nothing, so the namespace must be there before
    try:
        done = real_cluster.try_kubectl("apply", "-k", source, "--dry-run=server", "--validate=strict")
        assert done.returncode == 0, done.stderr
        for each in (
            "namespace/gputax-proxy",
            "networkpolicy.networking.k8s.io/no-network",
            "daemonset.apps/gputax-proxy",
        ):
            assert each in done.stdout
        assert "violate PodSecurity" not in done.stderr
    finally:
        real_cluster.kubectl("delete", "-k", base, "--wait")


def test_the_job_by_kubectl_alone_ends_with_a_result_that_compare_reads(
    no_namespace: RealCluster, tmp_path: Path
) -> None:
    cluster = no_namespace
    directory = tmp_path / "mine"
    directory.mkdir()
    kustomization(directory, "base", cluster.image, ["--scenario", "single-stream"])
    cluster.kubectl("apply", "-k", str(directory))

    def condition() -> str:
        status = cluster.get("job", JOB, "-n", NAMESPACE)["status"]
        ended = [each["type"] for each in status.get("conditions", []) if each["status"] == "True"]
        return next((each for each in ended if each in ("Complete", "Failed")), "")

    outcome = eventually("the Job ends", condition, 240)
    log = cluster.kubectl("logs", f"job/{JOB}", "-n", NAMESPACE)
    assert outcome == "Complete", log
    pod = cluster.get("pods", "-n", NAMESPACE, "-l", f"job-name={JOB}")["items"][0]
    assert pod["status"]["qosClass"] == "Guaranteed"

    (tmp_path / "pod.log").write_text(log)
    compared = cluster.gputax("compare", "pod.log", "pod.log", "--format", "json", cwd=tmp_path)
    assert compared.returncode in (0, 6, 7), compared.stderr
    assert "resnet50" in compared.stdout
    assert pod["metadata"]["uid"] in log, "the record's evidence names the very pod"
