"""Tenants share the node's GPU: techniques by node label, scaled, proven, and Prometheus as the second witness."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.device_offer import GPU_MEMORY_MB, gpu_uuid
from e2e.layout import REPOSITORY
from tests.e2e.real_cluster import calls_since, eventually
from tests.e2e.shared_node import CONFIG_LABEL, DRIVER, PLUGIN_NAMESPACE, SLEEPS, SharedNode, evidence_of, record_in

pytestmark = pytest.mark.e2e


def test_tenants_are_scaled_behind_one_watch_and_prometheus_tells_the_same_mean(
    shared: SharedNode, tmp_path: Path
) -> None:
    before = shared.cluster.own.audit_log.stat().st_size
    further = {"window": "15s", "cpus": "0", "prometheus": shared.prometheus}  # no CPUs asked for: each gets its part
    words = shared.words(tech="time-slicing", tenants="1,3,5,7", **further, **SLEEPS)
    done = shared.cluster.gputax(*words, "--out", "scaled", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    record = record_in(tmp_path / "scaled")
    assert record["complete"]
    assert sorted(row["tenants"] for row in record["rows"]) == [1, 3, 5, 7]
    for cell in record["cells"]:
        assert cell["valid"], cell["warnings"]
        assert len(cell["results"]) == cell["tenants"]
        assert cell["overlap_share"] >= 0.9
        names = {result["evidence"]["pod"] for result in cell["results"]}
        assert len(names) == cell["tenants"], "each tenant has a pod of its own"
        devices = {result["evidence"]["device_ids"]["visible"] for result in cell["results"]}
        assert devices == {gpu_uuid(0)}, "all on the same device"
        assert cell["evidence"]["switched"]["allocatable"]["nvidia.com/gpu.shared"] == "7"
        check = cell["cross_check"]
        assert check, cell["warnings"]
        print(f"{cell['tenants']} tenants: ours {check['ours_ms']} ms, Prometheus {check['prometheus_ms']} ms")
        assert abs(check["difference_percent"]) <= 2, check

    calls = calls_since(shared.cluster, before)
    pods = [each for each in calls if (each.get("objectRef") or {}).get("resource") == "pods"]
    watches = {each["auditID"] for each in pods if each["verb"] == "watch"}
    assert len(watches) == 1, "one watch for all tenants of all cells"
    asked = [each for each in pods if each["verb"] in ("get", "list") and not each["objectRef"].get("subresource")]
    # Nothing is polled: pods left by earlier runs are looked for once, and strangers on the node once per cell.
    assert len({each["auditID"] for each in asked}) <= 3 + len(record["cells"]), [each["requestURI"] for each in asked]


@pytest.fixture
def least_role(shared: SharedNode, tmp_path: Path) -> Iterator[Path]:
    """Give a user that may do what kubernetes/access-sharing says, in the way that it says."""
    cluster, access = shared.cluster, str(REPOSITORY / "kubernetes/access-sharing")
    kubeconfig, _ = cluster.least_kubeconfig(tmp_path)
    cluster.kubectl("apply", "-k", access)
    binding = ("rolebinding", "gputax-plugin-files", "-n", PLUGIN_NAMESPACE)
    cluster.kubectl("create", *binding, "--clusterrole=gputax-plugin-files", "--serviceaccount=gputax:gputax")
    yield kubeconfig
    cluster.kubectl("delete", *binding)
    cluster.kubectl("delete", "-k", access)


def test_the_label_drives_each_technique_with_the_least_role_and_the_node_is_put_back(
    shared: SharedNode, least_role: Path, tmp_path: Path
) -> None:
    words = shared.words(tech="time-slicing,mps,mig", tenants="2", **DRIVER)
    done = shared.cluster.gputax(*words, "--out", "each", cwd=tmp_path, kubeconfig=least_role)
    assert done.returncode == 0, done.stderr
    record = record_in(tmp_path / "each")
    assert {cell["technique"] for cell in record["cells"]} == {"time-slicing", "mps", "mig"}
    assert all(cell["valid"] for cell in record["cells"]), record["cells"]

    def of_tenants(technique: str, name: str) -> list[Any]:
        (cell,) = [each for each in record["cells"] if each["technique"] == technique]
        return [result["evidence"][name] for result in cell["results"]]

    assert {ids["visible"] for ids in of_tenants("time-slicing", "device_ids")} == {gpu_uuid(0)}
    assert {ids["visible"] for ids in of_tenants("mps", "device_ids")} == {gpu_uuid(0)}
    slices = {ids["visible"] for ids in of_tenants("mig", "device_ids")}
    assert len(slices) == 2
    assert all(each.startswith("MIG-") for each in slices)
    assert str(GPU_MEMORY_MB // 7) in json.dumps(evidence_of(record, "mps")), "the memory cap that the tenants saw"
    assert "1g.10gb" in json.dumps(evidence_of(record, "mig"))
    assert "software" in record["device_label"]
    shared.is_back()


def test_one_tenant_of_a_gpu_that_its_owner_shares_is_an_environment_like_any_other(
    shared: SharedNode, tmp_path: Path
) -> None:
    shared.label(CONFIG_LABEL, "gputax-mps-7")
    try:
        shared.offers("nvidia.com/gpu.shared", 7)
        eventually("its label", lambda: shared.state().labels["nvidia.com/gpu.sharing-strategy"] == "mps", 30)
        as_owned = shared.state()
        options = ("--image", shared.cluster.image, "--memory", "512Mi", "--cpus", "1")
        words = (*options, "--workload", "micro:operation", "--device", "software", "--scenario", "saturate")
        done = shared.cluster.gputax("run", "--env", "k8s+mps", *words, "--out", "mps", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        record = json.loads((tmp_path / "mps/benchmark_results.json").read_text())
        evidence = record["evidence"]
        assert (evidence["layer"], evidence["active"]) == ("mps", True)
        assert evidence["limits"]["nvidia.com/gpu.shared"] == "1"
        assert evidence["technique"]["limits"]["memory_cap_mb"] == GPU_MEMORY_MB / 7
        assert "says nothing about a GPU under mps" in " ".join((done.stdout + done.stderr).split())

        other = shared.cluster.gputax("run", "--env", "k8s+time-slicing", *words, "--out", "ts", cwd=tmp_path)
        assert other.returncode == 3
        assert "sharing-strategy is mps, not time-slicing" in other.stderr
        assert shared.state() == as_owned, "nothing was switched"
    finally:
        shared.label(CONFIG_LABEL, None)


def test_an_interrupted_experiment_leaves_nothing_and_resumes(shared: SharedNode, tmp_path: Path) -> None:
    # Four GPUs: the plugin must be told to put all tenants on one of them.
    node = shared.with_gpus(4)
    words = [*node.words(tech="time-slicing", tenants="1,2", **SLEEPS), "--out", "broken"]
    process = node.cluster.begin(*words, cwd=tmp_path)
    try:
        eventually("one cell is kept", lambda: cells_in(tmp_path / "broken") == 1, 60)
        eventually("the next cell's tenants", lambda: len(node.cluster.ours()) >= 2, 30)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert process.returncode == 130, errors
    assert node.cluster.ours() == []
    node.is_back()
    first = record_in(tmp_path / "broken")
    assert not first["complete"]

    again = node.cluster.gputax(*words, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    record = record_in(tmp_path / "broken")
    assert record["complete"]
    assert len(record["sessions"]) == 2
    devices = [result["evidence"]["device_ids"]["visible"] for cell in record["cells"] for result in cell["results"]]
    assert devices == [gpu_uuid(0)] * 3, "one device for all tenants, though there are four"
    kept = {cell["cell"]: cell["started_at"] for cell in record["cells"]}
    assert kept.items() >= {cell["cell"]: cell["started_at"] for cell in first["cells"]}.items(), "not measured again"


def cells_in(directory: Path) -> int:
    try:
        return len(record_in(directory)["cells"])
    except (FileNotFoundError, json.JSONDecodeError):
        return 0
