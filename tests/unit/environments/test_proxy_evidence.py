"""Every single thing that speaks against the layer must be found: none of these may give a number."""

from __future__ import annotations

from typing import Any

import pytest

from gputax.environments.proxy import Intended, proxy_evidence

VGPU = "/native/vgpu/libcuda.so.1"
SOFTWARE = "/native/software/libcuda.so.1"
INTENDED = Intended(VGPU, "shm", SOFTWARE)
CALLS = {"cuMemAlloc_v2": 10, "cuMemFree_v2": 10, "cuCtxSynchronize": 3}


def driver(**changes: Any) -> dict[str, Any]:
    vgpu = {
        "tenant": 4,
        "transport": "shm",
        "backend": SOFTWARE,
        "device": "gputax software device",
        "wait_policy": "adaptive",
        "calls": dict(CALLS),
    }
    vgpu.update(changes.pop("vgpu", {}))
    return {"pid": 77, "library": VGPU, "vgpu": vgpu, "device_nodes": [], **changes}


def status(**changes: Any) -> dict[str, Any]:
    tenant = {"id": 4, "pid": 77, "calls": {**CALLS, "cuLaunchKernel": 0}}
    tenant.update(changes.pop("tenant", {}))
    return {"pid": 5, "backend": SOFTWARE, "device": "gputax software device", "tenants": [tenant], **changes}


def test_the_evidence_says_whether_programs_on_the_cuda_runtime_were_taken() -> None:
    seen = {"asked_for": True, "self_tests_answered": 3}
    assert proxy_evidence({**driver(), "cuda_runtime": seen}, status(), INTENDED).facts["cuda_runtime"] == seen
    assert "cuda_runtime" not in proxy_evidence(driver(), status(), INTENDED).facts


def test_all_well() -> None:
    evidence = proxy_evidence(driver(), status(), INTENDED).to_dict()
    assert evidence["active"] is True
    assert evidence["reasons"] == []
    assert evidence["backend"] == SOFTWARE
    assert evidence["device"] == "gputax software device"
    assert (evidence["transport"], evidence["wait_policy"]) == ("shm", "adaptive")
    assert evidence["calls_by_worker"] == evidence["calls_by_proxy"] == 23


def test_a_tenant_that_has_just_ended_counts_too() -> None:
    document = status()
    document["ended_tenants"] = document.pop("tenants")
    assert proxy_evidence(driver(), document, INTENDED).active is True


def test_a_proxy_that_ran_already_has_its_own_backend() -> None:
    elsewhere = {"backend": "/usr/lib/libcuda.so.550"}
    reported = driver(vgpu=elsewhere)
    assert proxy_evidence(reported, status(**elsewhere), Intended(VGPU, "shm")).active is True
    assert proxy_evidence(reported, status(**elsewhere), INTENDED).active is False


@pytest.mark.parametrize(
    ("reported", "counted", "reason"),
    [
        (driver(library=SOFTWARE), status(), "not libvgpu"),
        (driver(library=None), status(), "no driver"),
        ({**driver(), "vgpu": None}, status(), "no connection to a proxy"),
        ({}, status(), "no connection to a proxy"),
        (driver(device_nodes=["/dev/nvidia0"]), status(), "opened /dev/nvidia0"),
        (driver(vgpu={"transport": "unix-socket"}), status(), "not shm"),
        (driver(vgpu={"tenant": 9}), status(), "has no tenant 9"),
        (driver(), status(tenants=[]), "has no tenant 4"),
        (driver(pid=78), status(), "is process 77, but the worker is 78"),
        (driver(), status(tenant={"calls": {**CALLS, "cuMemAlloc_v2": 9}}), "cuMemAlloc_v2: 10 made, 9 counted"),
        (driver(), status(tenant={"calls": {**CALLS, "cuInit": 1}}), "cuInit: 0 made, 1 counted"),
        (driver(vgpu={"calls": {}}), status(tenant={"calls": {}}), "no call went through"),
        (driver(), status(backend="/elsewhere"), "backend is /elsewhere"),
        (driver(vgpu={"device": "Tesla T4"}), status(), "reports device 'Tesla T4'"),
    ],
)
def test_whatever_speaks_against_it_makes_it_invalid(
    reported: dict[str, Any], counted: dict[str, Any], reason: str
) -> None:
    evidence = proxy_evidence(reported, counted, INTENDED)
    assert evidence.active is False
    assert any(reason in each for each in evidence.reasons), evidence.reasons
