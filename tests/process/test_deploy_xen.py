"""`gputax deploy --with-xen` against a stand-in API server: nodes, RuntimeClass, both Jobs, the verdict."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gputax.results.importers.pod_log import result_block
from tests.builders.documents import record as run_record
from tests.standins.cloud import Cloud

LABEL = "xen-enabled"


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    cloud = Cloud(tmp_path)
    cloud.api.log = result_block(run_record())
    cloud.api.add_node("node-1", gpus=1)
    yield cloud
    cloud.close()
    assert cloud.calls() == [], "no program is called for a cluster that is there"


def gputax(cloud: Cloud, *words: str) -> tuple[int, str]:
    done = cloud.gputax(*words, KUBECONFIG=str(cloud.home / "kubeconfig"))
    return done.returncode, done.stdout + done.stderr


def labels(cloud: Cloud, node: str) -> dict[str, str]:
    found: dict[str, str] = cloud.api.objects[f"/api/v1/nodes/{node}"]["metadata"]["labels"]
    return found


def test_both_jobs_run_and_the_second_one_is_in_guests(cloud: Cloud) -> None:
    cloud.api.add_node("xen-1", gpus=0)
    code, output = gputax(cloud, "deploy", "--yes", "--with-xen", "--xen-nodes", "xen-1")
    assert labels(cloud, "xen-1").get(LABEL) == "true"
    assert cloud.api.named("RuntimeClass") == ["xen-gpu"]
    jobs = {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in cloud.api.objects.values()
        if each["kind"] == "Job"
    }
    plain, guest = jobs["gpu-benchmark-baseline"], jobs["gpu-benchmark-baseline-xen"]
    assert "runtimeClassName" not in plain
    assert guest["runtimeClassName"] == "xen-gpu"
    assert "k8s+xen" in guest["containers"][0]["command"] + guest["containers"][0].get("args", [])
    assert "nvidia.com/gpu" in plain["containers"][0]["resources"]["limits"]
    assert "nvidia.com/gpu" not in guest["containers"][0]["resources"]["limits"], "dom0 keeps the GPU"
    for name in ("baseline", "baseline-xen"):
        assert (cloud.work / "results" / name / "benchmark_results.json").is_file()
    # Both logs of the stand-in are the same record, so that nothing of a guest was measured: not a pass.
    assert code == 7, output

    for name in ("baseline-xen", "baseline"):
        assert gputax(cloud, "destroy", "--yes", "--out", f"results/{name}")[0] == 0
    assert labels(cloud, "xen-1").get(LABEL) is None, "we labelled it, so the label goes"
    assert cloud.api.named("RuntimeClass") == cloud.api.named("Job") == cloud.api.named("Namespace") == []


def test_a_label_of_others_stays(cloud: Cloud) -> None:
    cloud.api.add_node("xen-1", gpus=0, labels={LABEL: "true"})
    gputax(cloud, "deploy", "--yes", "--with-xen")
    assert gputax(cloud, "destroy", "--yes", "--out", "results/baseline-xen")[0] == 0
    assert labels(cloud, "xen-1")[LABEL] == "true"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ((), "no node has the label xen-enabled=true"),
        (("--xen-nodes", "nowhere"), "no node is called nowhere"),
    ],
)
def test_without_a_xen_node_the_baseline_stays_and_the_next_step_is_named(
    cloud: Cloud, words: tuple[str, ...], what: str
) -> None:
    code, output = gputax(cloud, "deploy", "--yes", "--with-xen", *words)
    assert code == 3
    assert what in output
    assert (cloud.work / "results/baseline/benchmark_results.json").is_file()
    assert cloud.api.named("RuntimeClass") == []


def test_a_dry_run_shows_both_plans_and_asks_nobody(cloud: Cloud) -> None:
    code, output = gputax(cloud, "deploy", "--dry-run", "--with-xen", "--xen-nodes", "a,b")
    assert code == 0
    assert "kubectl label node a xen-enabled=true" in output
    assert "RuntimeClass xen-gpu" in output
    manifests = cloud.work / "results/baseline-xen/deployment/manifests"
    assert (manifests / "15-runtime-class.yaml").is_file()
    assert cloud.api.named("Job") == []
