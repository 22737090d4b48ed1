"""Every single thing that speaks against the layer must be found: none of these may give a number."""

from __future__ import annotations

from typing import Any, ClassVar

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


def test_the_evidence_says_what_the_worker_had_given_up() -> None:
    confined = status(tenant={"confinement": ["no_new_privs", "seccomp"]})
    assert proxy_evidence(driver(), confined, INTENDED).facts["confinement"] == ["no_new_privs", "seccomp"]
    assert proxy_evidence(driver(), status(), INTENDED).facts["confinement"] == []


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


def tenant(number: int, pid: int, calls: int) -> dict[str, Any]:
    return {"id": number, "pid": pid, "calls": {"cuMemAlloc": calls} if calls else {}}


class TestAProgramOfTheUsers:
    """It reports no calls of its own: those that the proxy counted decide."""

    PROGRAM: ClassVar[dict[str, Any]] = {"program": {"pids": [70, 71], "libraries": [], "device_nodes": []}}
    SHARED = Intended("/n/libvgpu.so", "shm")

    def test_its_processes_among_the_tenants_are_the_evidence(self) -> None:
        seen = {**status(), "tenants": [tenant(1, 71, 5), tenant(2, 99, 1000)], "ended_tenants": [tenant(3, 70, 2)]}
        found = proxy_evidence(self.PROGRAM, seen, self.SHARED)
        assert found.active
        assert (found.fact("calls_by_proxy"), found.fact("tenants")) == (7, [1, 3])

    @pytest.mark.parametrize(
        ("tenants", "reason"),
        [
            ([], "no process of the program is a tenant of the proxy"),
            ([tenant(2, 99, 1000)], "no process of the program is a tenant of the proxy"),
            ([tenant(1, 71, 0)], "no call went through the proxy"),
        ],
    )
    def test_the_calls_of_others_prove_nothing(self, tenants: list[dict[str, Any]], reason: str) -> None:
        found = proxy_evidence(self.PROGRAM, {**status(), "tenants": tenants}, self.SHARED)
        assert not found.active
        assert reason in found.why_not

    def test_a_place_of_its_own_shows_no_others(self) -> None:
        seen = {**status(), "tenants": [tenant(1, 4, 5)]}
        assert proxy_evidence(self.PROGRAM, seen, Intended("/n/libvgpu.so", "shm", same_pid_namespace=False)).active

    def test_a_device_that_it_opened_itself_goes_past_the_proxy(self) -> None:
        program = {"program": {**self.PROGRAM["program"], "device_nodes": ["/dev/nvidia0"]}}
        found = proxy_evidence(program, {**status(), "tenants": [tenant(1, 71, 5)]}, self.SHARED)
        assert found.reasons == ("the program itself opened /dev/nvidia0",)
