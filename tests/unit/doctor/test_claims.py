"""What doctor says about ResourceClaims: the API, rights, classes and devices, each with the command that fixes it."""

from __future__ import annotations

from typing import Any

import pytest

from gputax.doctor.claims import check_claims, claim_facts
from gputax.kubernetes.client import Cluster
from tests.standins.claim_scheduler import ClaimScheduler
from tests.standins.kube_api import KubeApi

WELL: dict[str, Any] = {
    "api": True,
    "devices": [{"node": "n", "kind": "gpu", "count": 2}],
    "classes": ["gpu.nvidia.com", "mig.nvidia.com"],
    "missing_rights": [],
}
RIGHT = {"verb": "create", "resource": "resourceclaims", "why": "make the claim that the pods name"}


def test_all_well_is_three_lines_and_no_fix() -> None:
    findings = check_claims(WELL, "", True)
    assert [each.status for each in findings] == ["ok", "ok", "ok"]
    assert findings[-1].detail == "n: 2 gpu"


@pytest.mark.parametrize(
    ("changed", "status", "title", "fix"),
    [
        ({"api": False}, "fail", "The cluster does not serve resource.k8s.io/v1", "kubectl api-versions"),
        ({"missing_rights": [RIGHT]}, "fail", "Not permitted: create resourceclaims", "kubernetes/access-dra"),
        ({"classes": []}, "fail", "No device class gpu.nvidia.com, mig.nvidia.com", "install-nvidia-dra-driver"),
        ({"devices": []}, "fail", "No ResourceSlice of gpu.nvidia.com", "install-nvidia-dra-driver"),
        ({"devices": None}, "warn", "Not permitted to list resourceslices", "create clusterrole"),
    ],
)
def test_each_fault_has_its_line_and_its_fix(changed: dict[str, Any], status: str, title: str, fix: str) -> None:
    (found,) = [each for each in check_claims({**WELL, **changed}, "", True) if each.status != "ok"]
    assert (found.status, found.title) == (status, title)
    assert fix in found.fix_command


def test_without_the_flavour_only_devices_are_worth_a_line() -> None:
    (found,) = check_claims(WELL, "", False)
    assert "--sharing-flavour dra uses them" in found.detail
    for silent in ({**WELL, "devices": None}, {**WELL, "devices": []}, {**WELL, "api": False, "devices": None}, None):
        assert check_claims(silent, "", False) == []
    (unknown,) = check_claims(None, "no answer in time", True)
    assert unknown.status == "fail"


def test_the_facts_come_from_the_cluster(api: KubeApi) -> None:
    ClaimScheduler(api, gpus=2)
    cluster = Cluster("", "gputax")
    facts = claim_facts(cluster, claims=False)
    assert {"node": "gpu-1", "kind": "gpu", "count": 2} in facts["devices"]
    assert {"node": "gpu-1", "kind": "1g.10gb", "count": 14} in facts["devices"]
    api.forbidden.add("GET resourceslices")
    assert claim_facts(cluster, claims=False)["devices"] is None
    api.unserved.add("resource.k8s.io")
    assert claim_facts(cluster, claims=False)["api"] is False
    cluster.close()
