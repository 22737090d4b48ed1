"""GPUs by ResourceClaim on a real cluster with a stand-in DRA driver: every technique, the least role, and faults."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.device_offer import GPU_MEMORY_MB, gpu_uuid
from e2e.layout import NODE_NAME, REPOSITORY
from tests.e2e.real_cluster import NAMESPACE, RealCluster, calls_since, eventually
from tests.e2e.shared_node import DRIVER, SLEEPS, record_in, state_of, write_whole

pytestmark = pytest.mark.e2e
ACCESS = str(REPOSITORY / "kubernetes/access-dra")
TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "one-gpu", "namespace": NAMESPACE},
    "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}},
}


class Claims:
    """The cluster with its DRA driver, which a test may turn."""

    def __init__(self, cluster: RealCluster) -> None:
        self.cluster = cluster

    def turn(self, *words: str) -> None:
        """Let the driver misbehave; without words it is honest, with two GPUs."""
        words = words if any(word.startswith("gpus=") for word in words) else (*words, "gpus=2")
        write_whole(self.cluster.own.dra_switches, " ".join(words) + "\n")
        count = next(int(word.removeprefix("gpus=")) for word in words if word.startswith("gpus="))
        eventually(f"{count} GPUs are published", lambda: len(self.published()) == count, 30)

    def published(self) -> list[str]:
        """Return the names of the whole GPUs in the ResourceSlices."""
        devices = [
            each for item in self.cluster.get("resourceslices")["items"] for each in item["spec"].get("devices", ())
        ]
        return [each["name"] for each in devices if each["attributes"]["type"]["string"] == "gpu"]

    def words(self, tech: str, **options: str) -> list[str]:
        """Return the words of `gputax share` by claims, short enough for a test."""
        chosen = {"image": self.cluster.image, "memory": "512Mi", "repeats": "1", "cpus": "1", "tech": tech}
        chosen |= {"ready-timeout": "60", "warmup": "0.5s", "window": "1s", "slices": "2", "sharing-flavour": "dra"}
        chosen |= {name.replace("_", "-"): value for name, value in options.items()}
        return ["share", "--env", "k8s", *(word for name, value in chosen.items() for word in (f"--{name}", value))]


@pytest.fixture
def claims(real_cluster: RealCluster, namespace: str) -> Iterator[Claims]:
    """Give the driver two GPUs, and see that a test changes nothing of the node."""
    found = Claims(real_cluster)
    before = state_of(real_cluster)
    found.turn()
    yield found
    found.turn("gpus=4")
    assert state_of(real_cluster) == before, "no label, no annotation, no resource"


@pytest.fixture
def least(claims: Claims, tmp_path: Path) -> Iterator[Path]:
    """Give a user with the two namespaced roles and nothing of the cluster."""
    kubeconfig, _ = claims.cluster.least_kubeconfig(tmp_path)
    claims.cluster.kubectl("apply", "-k", ACCESS)
    yield kubeconfig
    claims.cluster.kubectl("delete", "-k", ACCESS)


def cells_of(record: dict[str, Any], technique: str) -> list[dict[str, Any]]:
    return [each for each in record["cells"] if each["technique"] == technique]


def test_rights_in_the_namespace_alone_are_enough_and_no_node_is_touched(
    claims: Claims, least: Path, tmp_path: Path
) -> None:
    position = claims.cluster.own.audit_log.stat().st_size
    words = claims.words("exclusive,time-slicing,mig", tenants="1,2", mig_profile="1g.10gb", **DRIVER)
    done = claims.cluster.gputax(*words, "--out", "least", cwd=tmp_path, kubeconfig=least)
    assert done.returncode == 0, done.stderr
    record = record_in(tmp_path / "least")
    assert {each["technique"] for each in record["cells"]} == {"exclusive", "time-slicing", "mig"}
    for cell in record["cells"]:
        assert cell["valid"], cell["warnings"]
        (claim,) = cell["evidence"]["claims"]
        assert len(claim["reserved_for"]) == cell["tenants"]
        assert cell["evidence"]["resource_slices"] == "not permitted to list them"
    (shared,) = [each for each in cells_of(record, "time-slicing") if each["tenants"] == 2]
    assert {each["device"] for each in shared["evidence"]["claims"][0]["devices"]} == {
        f"gpu.nvidia.com/{NODE_NAME}/gpu-0"
    }
    (sliced,) = [each for each in cells_of(record, "mig") if each["tenants"] == 2]
    assert len({each["device"] for each in sliced["evidence"]["claims"][0]["devices"]}) == 2

    calls = calls_since(claims.cluster, position)
    done_calls = [each for each in calls if (each.get("responseStatus") or {}).get("code", 500) < 300]
    beyond = [each["requestURI"] for each in done_calls if not (each.get("objectRef") or {}).get("namespace")]
    assert [each for each in beyond if not each.startswith("/version")] == [], "nothing of the cluster was read"


def test_mps_and_time_slices_are_parameters_of_the_claim(claims: Claims, tmp_path: Path) -> None:
    words = claims.words("mps,time-slicing", tenants="2", time_slice="Long", **DRIVER)
    done = claims.cluster.gputax(*words, "--out", "mps", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    record = record_in(tmp_path / "mps")
    (mps,), (sliced,) = cells_of(record, "mps"), cells_of(record, "time-slicing")
    assert mps["valid"], mps["warnings"]
    assert sliced["valid"], sliced["warnings"]
    (parameters,) = mps["evidence"]["claims"][0]["parameters"]
    assert parameters["sharing"]["mpsConfig"]["defaultActiveThreadPercentage"] == 50
    assert mps["evidence"]["limits"]["memory_cap_mb"] == GPU_MEMORY_MB / 2
    assert mps["evidence"]["driver_reports"][0]["memory_total_mb"] == GPU_MEMORY_MB / 2, "what the tenant saw"
    (parameters,) = sliced["evidence"]["claims"][0]["parameters"]
    assert parameters["sharing"]["timeSlicingConfig"] == {"interval": "Long"}
    ids = {str(each) for cell in (mps, sliced) for each in cell["evidence"]["device_ids"]}
    assert len(ids) == 1, "both techniques on the same of two GPUs"
    assert gpu_uuid(0) in str(ids) or gpu_uuid(1) in str(ids)


def test_run_measures_on_a_gpu_of_its_own_claim(claims: Claims, tmp_path: Path) -> None:
    options = ("--image", claims.cluster.image, "--memory", "512Mi", "--cpus", "1", "--gpus", "1")
    words = (*options, "--workload", "micro:operation", "--device", "software", "--scenario", "saturate")
    done = claims.cluster.gputax(
        "run", "--env", "k8s", "--sharing-flavour", "dra", *words, "--out", "run", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    evidence = json.loads((tmp_path / "run/benchmark_results.json").read_text())["evidence"]
    assert (evidence["layer"], evidence["active"]) == ("k8s", True)
    (claim,) = evidence["technique"]["claims"]
    assert claim["reserved_for"] == [evidence["pod"]]
    assert evidence["device_ids"]["nodes"] == ["/dev/nvidia" + claim["devices"][0]["device"][-1]]


@pytest.mark.parametrize(
    ("technique", "lie", "reason"),
    [
        ("time-slicing", "other-gpu", "but its claim got gpu-"),
        ("mps", "no-daemon", "finds no MPS control daemon"),
        ("time-slicing", "template", "2 claims got 2 GPUs instead of one"),
    ],
)
def test_sharing_by_name_alone_gives_no_number(
    claims: Claims, tmp_path: Path, technique: str, lie: str, reason: str
) -> None:
    further = {}
    if lie == "template":
        claims.cluster.apply(TEMPLATE)
        further = {"resource_claim": "template/one-gpu"}
    else:
        claims.turn(lie)
    done = claims.cluster.gputax(
        *claims.words(technique, tenants="2", **further, **DRIVER), "--out", "lie", cwd=tmp_path
    )
    if lie == "template":
        claims.cluster.kubectl("delete", "resourceclaimtemplate", "one-gpu", "-n", NAMESPACE)
    assert done.returncode == 5, done.stderr + done.stdout
    record = record_in(tmp_path / "lie")
    assert record["rows"] == []
    (warning,) = [each for each in record["cells"][0]["warnings"] if each["code"] == "no-evidence"]
    assert reason in warning["text"], warning
    assert reason in " ".join((done.stdout + done.stderr).split()), "told to the user too"


def test_a_claim_that_nobody_can_serve_is_refused_and_deleted(claims: Claims, least: Path, tmp_path: Path) -> None:
    claims.turn("gpus=0")
    seen = claims.cluster.gputax(*claims.words("time-slicing", tenants="2", **DRIVER), cwd=tmp_path)
    assert seen.returncode == 3, seen.stderr
    assert "offers no device at all" in seen.stderr
    # Without the right to see that, the claim is made, and the scheduler says it.
    words = claims.words("time-slicing", tenants="2", ready_timeout="30", **DRIVER)
    done = claims.cluster.gputax(*words, cwd=tmp_path, kubeconfig=least)
    assert done.returncode == 3, done.stderr
    assert "was never allocated a device" in done.stderr
    assert "cannot allocate all claims" in done.stderr
    assert "next:" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_driver_that_fails_to_prepare_and_missing_rights_are_told(claims: Claims, tmp_path: Path) -> None:
    claims.turn("prepare-fails")
    words = claims.words("time-slicing", tenants="2", ready_timeout="30", **DRIVER)
    done = claims.cluster.gputax(*words, cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "the stand-in driver was told to fail" in done.stderr

    claims.turn()
    without, _ = claims.cluster.least_kubeconfig(tmp_path)
    refused = claims.cluster.gputax(*words, cwd=tmp_path, kubeconfig=without)
    assert refused.returncode == 3, refused.stderr
    assert "not permitted" in refused.stderr
    assert "kubernetes/access-dra" in refused.stderr
    doctor = claims.cluster.gputax(
        "doctor", "--env", "k8s", "--sharing-flavour", "dra", cwd=tmp_path, kubeconfig=without
    )
    assert "Not permitted: create resourceclaims" in doctor.stdout
    well = claims.cluster.gputax("doctor", "--env", "k8s", "--sharing-flavour", "dra", cwd=tmp_path)
    assert f"{NODE_NAME}: 2 gpu" in well.stdout, well.stdout


def test_a_claim_deleted_in_the_middle_costs_the_cell(claims: Claims, tmp_path: Path) -> None:
    words = claims.words("time-slicing", tenants="2", window="8s", **SLEEPS)
    process = claims.cluster.begin(*words, "--out", "deleted", cwd=tmp_path)
    try:
        eventually("both tenants hold the claim", lambda: reserved(claims) == 2, 60)
        claims.cluster.kubectl("delete", "resourceclaims", "--all", "-n", NAMESPACE, "--wait=false")
        output, errors = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert process.returncode == 5, errors + output
    assert "was deleted during the measurement" in " ".join((output + errors).split())
    assert record_in(tmp_path / "deleted")["rows"] == []


def reserved(claims: Claims) -> int:
    items = claims.cluster.get("resourceclaims", "-n", NAMESPACE)["items"]
    return sum(len(each.get("status", {}).get("reservedFor", ())) for each in items)
