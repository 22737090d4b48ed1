"""Sharing on this machine: what tenants get, and every lie that the evidence must see."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from gputax.environments.environment import Described, Evidence
from gputax.errors import UsageError
from gputax.places import shared_place
from gputax.plan.cells import Setup
from gputax.plan.options import EnvironmentOptions
from gputax.plan.techniques import TECHNIQUES
from gputax.sharing.bare import BareShared
from gputax.sharing.cpu_quota import Quota, Throttling
from gputax.sharing.local_tenants import CoreTenant, QuotaTenant, cpu_seconds
from gputax.worker.probes.limits import CpuAllowance

MODEL = Setup("yolos-small")
OPERATION = Setup("micro:operation", engine="driver", device="software")
MACHINE = CpuAllowance((0, 1), None, "")
SHARED, QUOTA, PROXY = TECHNIQUES["cpu-shared"], TECHNIQUES["cpu-quota"], TECHNIQUES["proxy"]


@pytest.fixture
def place() -> BareShared:
    return BareShared(allowance=CpuAllowance((0, 1, 2, 3), None, ""))


class TestTenants:
    def test_all_have_the_same_threads_whatever_their_number(self, place: BareShared) -> None:
        setups = {t.setup for count in (1, 2, 7) for t in place.tenants(SHARED, count, 7, MODEL)}
        (setup,) = setups
        assert (setup.threads, setup.engine, setup.device) == (1, "onnx:spin=false", "cpu")

    def test_few_tenants_of_many_cores_get_their_share_of_threads(self, place: BareShared) -> None:
        (tenant,) = place.tenants(SHARED, 1, 2, MODEL)
        assert tenant.setup.threads == 2

    def test_threads_that_were_named_stay(self, place: BareShared) -> None:
        (tenant,) = place.tenants(SHARED, 1, 7, Setup("yolos-small", threads=3))
        assert tenant.setup.threads == 3

    def test_say_what_they_may_use(self, place: BareShared) -> None:
        (tenant,) = place.tenants(SHARED, 1, 7, MODEL)
        assert (tenant.entitlement.text, tenant.entitlement.share) == ("up to 1 of 4 cores (1 thread)", 0.25)
        (tenant,) = place.tenants(SHARED, 1, 7, Setup("yolos-small", threads=8))
        assert (tenant.entitlement.text, tenant.entitlement.share) == ("up to all 4 cores", 1.0)
        assert tenant.environment.name == "bare+cpu-shared"

    def test_a_quota_of_the_coordinator_itself_is_what_is_shared(self) -> None:
        assert BareShared(allowance=CpuAllowance((0, 1), 1.5, "cpu.max")).cpus == 1.5


@pytest.mark.parametrize(
    ("technique", "setup", "complaint"),
    [
        (PROXY, MODEL, "the engine onnx does not use"),
        (SHARED, OPERATION, "does not support workload micro"),
        (QUOTA, Setup("yolos-small", device="cuda"), "does not support cuda"),
    ],
)
def test_what_a_technique_cannot_run_is_refused(technique: Any, setup: Setup, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        BareShared().impossible(technique, setup)


def described(pid: int = 1, affinity: tuple[int, ...] = (0, 1), quota: float | None = None) -> Described:
    return Described({"pid": pid, "cpu_allowance": {"affinity": list(affinity), "quota_cpus": quota}})


class TestSharedEvidence:
    def test_all_cores_and_no_quota(self) -> None:
        assert CoreTenant("bare+cpu-shared", MACHINE).evidence(described()).active is True

    @pytest.mark.parametrize("lie", [described(affinity=(0,)), described(quota=0.5), Described()])
    def test_a_tenant_that_is_held_back_is_no_shared_one(self, lie: Described) -> None:
        evidence = CoreTenant("bare+cpu-shared", MACHINE).evidence(lie)
        assert evidence.active is False
        assert evidence.reasons


class FakeGroup:
    """A group as the kernel would show it."""

    def __init__(self, members: set[int], cpus: float | None) -> None:
        self.path, self._members, self._cpus = Path("/sys/fs/cgroup/cpu/g/t1"), members, cpus

    def members(self) -> set[int]:
        return self._members

    def effective_cpus(self) -> float | None:
        return self._cpus

    def throttling(self) -> Throttling:
        return Throttling(10, 5)


class TestQuotaEvidence:
    PID = os.getpid()

    def evidence(self, described: Described, members: set[int], cpus: float | None, elapsed_s: float = 1e6) -> Evidence:
        tenant = QuotaTenant("bare+cpu-quota", None, "t1", Quota(2500, 10_000))  # type: ignore[arg-type]
        tenant._group = FakeGroup(members, cpus)  # type: ignore[assignment]
        tenant._started_s = time.monotonic() - elapsed_s
        return tenant.evidence(described)

    def test_the_worker_the_group_and_the_kernel_agree(self) -> None:
        evidence = self.evidence(described(self.PID, quota=0.25), {self.PID}, 0.25).to_dict()
        assert evidence["active"] is True, evidence["reasons"]
        assert (evidence["periods"], evidence["throttled_periods"], evidence["quota_cpus"]) == (10, 5, 0.25)

    @pytest.mark.parametrize(
        ("described", "members", "cpus", "elapsed_s", "reason"),
        [
            (described(PID, quota=0.25), {1}, 0.25, 1e6, "is not in the group"),
            (described(PID, quota=None), {PID}, 0.25, 1e6, "sees a quota of None"),
            (described(PID, quota=2.0), {PID}, 0.25, 1e6, "sees a quota of 2.0"),
            (described(PID, quota=0.25), {PID}, None, 1e6, "the group's quota is None"),
            (described(PID, quota=0.25), {PID}, 0.25, -1e6, "its quota was not enforced"),
        ],
    )
    def test_each_lie_is_seen(
        self, described: Described, members: set[int], cpus: float | None, elapsed_s: float, reason: str
    ) -> None:
        evidence = self.evidence(described, members, cpus, elapsed_s)
        assert evidence.active is False
        assert reason in evidence.why_not

    def test_before_the_start_there_is_none(self) -> None:
        tenant = QuotaTenant("bare+cpu-quota", None, "t1", Quota(2500, 10_000))  # type: ignore[arg-type]
        assert tenant.evidence(Described()).active is False


class TestGroupEvidence:
    GOOD = ({"active": True, "proxy_pid": 7, "device": "d", "tenant": 1}, described(1))
    ALSO = ({"active": True, "proxy_pid": 7, "device": "d", "tenant": 2}, described(2))

    @staticmethod
    def evidence(technique: Any, *tenants: tuple[dict[str, Any], Described]) -> Evidence:
        return BareShared().evidence(technique, [Evidence(each[0]) for each in tenants], [each[1] for each in tenants])

    @pytest.mark.parametrize("technique", [SHARED, QUOTA, PROXY])
    def test_two_processes_of_one_machine(self, technique: Any) -> None:
        assert self.evidence(technique, self.GOOD, self.ALSO).active is True

    @pytest.mark.parametrize(
        ("technique", "second", "reason"),
        [
            (SHARED, ({"active": False, "reasons": ["held back"]}, described(2)), "tenant 2: held back"),
            (SHARED, ({}, described(2)), "tenant 2: no evidence"),
            (SHARED, ({"active": True}, described(1)), "the same process"),
            (SHARED, ({"active": True}, described(2, affinity=(1,))), "different cores"),
            (PROXY, ({**ALSO[0], "proxy_pid": 8}, described(2)), "2 proxies"),
            (PROXY, ({**ALSO[0], "device": "e"}, described(2)), "2 proxies or devices"),
            (PROXY, ({**ALSO[0], "tenant": 1}, described(2)), "two tenants as one"),
        ],
    )
    def test_each_lie_is_seen(self, technique: Any, second: tuple[dict[str, Any], Described], reason: str) -> None:
        evidence = self.evidence(technique, self.GOOD, second)
        assert evidence.active is False
        assert reason in evidence.why_not


class TestSoftwareDevice:
    TENANT = ({**TestGroupEvidence.GOOD[0], "device": "gputax software device"}, described(1))

    def test_without_a_time_of_its_own_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("GPUTAX_SOFT_KERNEL_US", raising=False)
        assert "GPUTAX_SOFT_KERNEL_US=125" in TestGroupEvidence.evidence(PROXY, self.TENANT).warning

    def test_with_one_needs_no_warning(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GPUTAX_SOFT_KERNEL_US", "125")
        assert "warning" not in TestGroupEvidence.evidence(PROXY, self.TENANT).to_dict()


def test_cpu_time_is_that_of_a_living_process() -> None:
    assert (cpu_seconds(os.getpid()) or 0.0) > 0.0
    assert cpu_seconds(2**22 + 1) is None


def test_an_unknown_place_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="'bear'") as raised:
        shared_place("bear", EnvironmentOptions(), print)
    assert "did you mean 'bare'?" in raised.value.next_step
