"""Pods that ask for shares, against an API server in memory: what they ask for, and that others' are gone first."""

from __future__ import annotations

from typing import Any

import pytest

from gputax.environments.kubernetes import Kubernetes
from gputax.errors import UsageError
from gputax.kubernetes.objects import pod
from gputax.plan.cells import Setup
from gputax.plan.options import EnvironmentOptions
from gputax.plan.shares import Asked
from gputax.plan.techniques import TECHNIQUES
from gputax.sharing.kubernetes.place import KubernetesShared
from gputax.sharing.place import AsksForShares, Tenant
from tests.standins.gpu_node import GpuNode
from tests.standins.kube_api import KubeApi

SETUP = Setup("resnet50")


def place(flavour: str = "auto") -> KubernetesShared:
    return KubernetesShared(EnvironmentOptions(image="gputax:1", ready_timeout_s=10, sharing_flavour=flavour))


def silent(text: str) -> None:
    pass


def manifest(tenant: Tenant) -> dict[str, Any]:
    assert isinstance(tenant.environment, Kubernetes)
    return dict(pod(tenant.environment.plan()))


def test_mps_asks_for_the_cap_that_the_plugin_sets(api: KubeApi) -> None:
    GpuNode(api)
    shared = place()
    assert isinstance(shared, AsksForShares)
    mps = TECHNIQUES["mps"]
    shared.switch(mps, 3, silent)
    tenants = shared.asking(mps, (1 / 3,) * 3, SETUP)
    for tenant in tenants:
        assert tenant.asked is not None
        assert (tenant.asked.compute, tenant.asked.exact) == (0.33, True)
        assert tenant.asked.memory == pytest.approx(1 / 3)
    (alone,) = shared.asking(mps, (1 / 3,), SETUP)
    assert alone.entitlement.text.startswith("33 % of the SMs")
    shared.close()


def test_time_slices_are_turns_and_the_whole_device_is_exclusive(api: KubeApi) -> None:
    GpuNode(api)
    shared = place()
    slicing, exclusive = TECHNIQUES["time-slicing"], TECHNIQUES["exclusive"]
    shared.switch(slicing, 2, silent)
    assert {tenant.asked for tenant in shared.asking(slicing, (0.5, 0.5), SETUP)} == {Asked(0.5, exact=False)}
    shared.switch(exclusive, 2, silent)
    assert [tenant.asked for tenant in shared.asking(exclusive, (1.0,), SETUP)] == [Asked(1.0, 1.0)]
    shared.close()


def variables(tenant: Tenant) -> dict[str, str]:
    return {each["name"]: each["value"] for each in manifest(tenant)["spec"]["containers"][0]["env"] if "value" in each}


def test_tenants_of_mps_lower_the_plugins_cap_each_to_their_own(api: KubeApi) -> None:
    GpuNode(api)
    shared, mps = place(), TECHNIQUES["mps"]
    shared.refuse_shares(mps, (0.3, 0.5), SETUP)
    shared.switch(mps, 2, silent)
    small, large = shared.asking(mps, (0.3, 0.5), SETUP)
    assert variables(small)["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "30"
    whole_mb = shared._node.current().memory_mb
    assert whole_mb
    assert variables(small)["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == f"0={int(0.3 * whole_mb)}M"
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in variables(large)  # the plugin's own cap
    assert small.asked is not None
    assert large.asked is not None
    assert (small.asked.compute, large.asked.compute) == (0.3, 0.5)
    assert (small.asked.memory, large.asked.memory) == (pytest.approx(0.3), pytest.approx(0.5))
    assert small.entitlement.text.startswith("30 % of the SMs")
    (alone,) = shared.asking(mps, (0.3,), SETUP)
    assert variables(alone)["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "30"
    shared.close()


def test_a_share_above_the_plugins_cap_is_refused_and_the_way_by_a_claim_named(api: KubeApi) -> None:
    shared = place()
    with pytest.raises(UsageError, match="at 50 %, and a tenant can only lower its cap: 70 %") as refused:
        shared.refuse_shares(TECHNIQUES["mps"], (0.3, 0.7), SETUP)
    assert "--sharing-flavour dra" in refused.value.next_step
    shared.close()


def test_equal_shares_of_mps_need_no_variable(api: KubeApi) -> None:
    GpuNode(api)
    shared, mps = place(), TECHNIQUES["mps"]
    shared.switch(mps, 6, silent)
    for tenant in shared.asking(mps, (1 / 6,) * 6, SETUP):
        assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in variables(tenant)
    shared.close()


@pytest.mark.parametrize("technique", ["mig", "time-slicing"])
def test_unequal_shares_of_what_gives_all_the_same_are_refused(api: KubeApi, technique: str) -> None:
    shared = place()
    with pytest.raises(UsageError, match="the same share") as refused:
        shared.refuse_shares(TECHNIQUES[technique], (0.3, 0.7), SETUP)
    assert "--tech fraction" in refused.value.next_step
    shared.refuse_shares(TECHNIQUES["fraction"], (0.3, 0.7), SETUP)
    shared.close()


def test_tenants_of_hami_ask_for_percentages_each_their_own(api: KubeApi) -> None:
    GpuNode(api).set({}, {"nvidia.com/gpu": "10"})
    shared, fraction = place("hami"), TECHNIQUES["fraction"]
    shared.switch(fraction, 2, silent)
    tenants = shared.asking(fraction, (0.3, 0.7), SETUP)
    assert [tenant.asked for tenant in tenants] == [Asked(0.3, 0.3), Asked(0.7, 0.7)]
    limits = [manifest(tenant)["spec"]["containers"][0]["resources"]["limits"] for tenant in tenants]
    assert [each["nvidia.com/gpucores"] for each in limits] == ["30", "70"]
    assert [each["nvidia.com/gpumem-percentage"] for each in limits] == ["30", "70"]
    (other,) = shared.asking(fraction, (0.7,), SETUP)
    assert manifest(other)["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpucores"] == "70"
    shared.close()
