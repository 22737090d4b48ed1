"""Claims against an API server in memory: one per technique, named by every tenant, gone at the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gputax.environments.environment import Described, Evidence
from gputax.errors import PreflightError, UsageError
from gputax.places import Places, environment_named, shared_place
from gputax.plan.cells import Setup
from gputax.plan.driver import DriverChoice
from gputax.plan.options import EnvironmentOptions
from gputax.plan.techniques import TECHNIQUES
from gputax.sharing.dra.environment import ClaimedKubernetes, ClaimedRun
from gputax.sharing.dra.place import ClaimedShared
from gputax.sharing.place import AsksForShares, Tenant
from tests.standins.claim_scheduler import CLAIMS, SLICES, ClaimScheduler
from tests.standins.kube_api import KubeApi, start_without_worker
from tests.standins.virtual_clock import VirtualClock

SETUP = Setup("micro:operation", engine="driver", device="software")
OPTIONS = EnvironmentOptions(image="gputax:1", ready_timeout_s=10, sharing_flavour="dra", cpus=1)
TIME_SLICING, MPS, MIG, PROXY = (TECHNIQUES[name] for name in ("time-slicing", "mps", "mig", "proxy"))


def silent(text: str) -> None:
    pass


def opened(options: EnvironmentOptions = OPTIONS) -> ClaimedShared:
    return ClaimedShared(options, clock=VirtualClock(patience_s=5.0))


@pytest.fixture
def place(api: KubeApi) -> Iterator[ClaimedShared]:
    made = opened()
    yield made
    made.close()


def started(tenants: list[Tenant]) -> list[ClaimedKubernetes]:
    environments = []
    for tenant in tenants:
        assert isinstance(tenant.environment, ClaimedKubernetes)
        start_without_worker(tenant.environment)
        environments.append(tenant.environment)
    return environments


def described(environment: ClaimedKubernetes, node: str = "/dev/nvidia0", memory_mb: int = 81920) -> Described:
    cuda = {"name": "gputax software device", "memory_total_mb": memory_mb, "memory_free_mb": memory_mb}
    assert environment._pod is not None
    host = {"hostname": environment._pod.name, "visible_devices": "void"}
    allowance = {"quota_cpus": 1.0, "affinity": [0, 1]}
    return Described({"host": host, "cpu_allowance": allowance, "devices": {"nodes": [node], "cuda": cuda}})


def judged(place: ClaimedShared, technique: Any, tenants: list[Tenant], **seen: Any) -> Evidence:
    environments = started(tenants)
    workers = [described(each, **seen) for each in environments]
    proofs = [each.evidence(worker) for each, worker in zip(environments, workers, strict=True)]
    return place.evidence(technique, proofs, workers)


def test_all_tenants_name_one_claim_and_no_node_is_read_or_changed(api: KubeApi, place: ClaimedShared) -> None:
    cluster = ClaimScheduler(api)
    switched = place.switch(TIME_SLICING, 3, silent)
    found = judged(place, TIME_SLICING, place.tenants(TIME_SLICING, 3, 3, SETUP))
    assert found.active, found.reasons
    (claim,) = cluster.claims()
    assert claim["metadata"]["name"] == switched.facts["claim"]
    assert len(claim["status"]["reservedFor"]) == 3
    pods = [each for path, each in api.objects.items() if "/pods/" in path]
    assert {each["spec"]["resourceClaims"][0]["resourceClaimName"] for each in pods} == {claim["metadata"]["name"]}
    assert all("nvidia.com" not in str(each["spec"]["containers"][0]["resources"]) for each in pods)
    assert not [each for each in api.requests if "/nodes" in each or "daemonsets" in each or "configmaps" in each]
    assert "kubernetes/claim-time-slicing.json" in place.files()
    assert f"kubernetes/{claim['metadata']['name']}.yaml" in place.files()


def test_each_technique_is_another_claim_on_the_same_gpu_and_none_is_left(api: KubeApi) -> None:
    cluster, place = ClaimScheduler(api, gpus=2), opened()
    for technique, memory_mb in ((TIME_SLICING, 81920), (MPS, 40960), (MIG, 40960)):
        place.switch(technique, 2, silent)
        tenants = place.tenants(technique, 2, 2, SETUP)
        found = judged(place, technique, tenants, memory_mb=memory_mb)
        pipe = "finds no MPS control daemon", "is not a client of MPS"
        left = [each for each in found.reasons if not any(words in each for words in pipe)]
        assert left == [], technique.name
        (claim,) = cluster.claims()
        selectors = str(claim["spec"]["devices"]["requests"][0]["exactly"].get("selectors"))
        assert ("-000000000000'" in selectors) == (technique is not TIME_SLICING), "pinned to the first one's GPU"
    place.close()
    assert cluster.claims() == []
    assert api.named("Pod") == []


def test_a_claim_that_is_never_allocated_fails_with_the_scheduler_s_words(api: KubeApi) -> None:
    cluster, place = ClaimScheduler(api, fault="never"), opened()
    try:
        place.switch(TIME_SLICING, 2, silent)
        (tenant, _) = place.tenants(TIME_SLICING, 2, 2, SETUP)
        with pytest.raises(
            PreflightError, match=r"was never allocated a device: .*cannot allocate all claims"
        ) as caught:
            start_without_worker(tenant.environment)
        assert "describe resourceclaim" in str(caught.value.next_step)
    finally:
        place.close()
    assert cluster.claims() == []


def test_a_stranger_on_the_claim_is_told(api: KubeApi, place: ClaimedShared) -> None:
    ClaimScheduler(api, fault="stranger")
    place.switch(TIME_SLICING, 2, silent)
    found = judged(place, TIME_SLICING, place.tenants(TIME_SLICING, 2, 2, SETUP))
    assert any("is also reserved for others: stranger" in each for each in found.reasons)


def test_a_claim_deleted_between_cells_is_told_and_made_again(api: KubeApi, place: ClaimedShared) -> None:
    cluster = ClaimScheduler(api)
    place.switch(TIME_SLICING, 2, silent)
    tenants = place.tenants(TIME_SLICING, 2, 2, SETUP)
    environments = started(tenants)
    (claim,) = cluster.claims()
    first = claim["metadata"]["name"]
    del api.objects[f"{CLAIMS}/{first}"]
    workers = [described(each) for each in environments]
    proofs = [each.evidence(worker) for each, worker in zip(environments, workers, strict=True)]
    assert any("was deleted during the measurement" in each
               for each in place.evidence(TIME_SLICING, proofs, workers).reasons)  # fmt: skip
    found = judged(place, TIME_SLICING, place.tenants(TIME_SLICING, 2, 2, SETUP))
    assert found.active, found.reasons
    (claim,) = cluster.claims()
    assert claim["metadata"]["name"] != first


def test_a_template_gives_each_pod_a_gpu_of_its_own_which_is_not_sharing(api: KubeApi) -> None:
    ClaimScheduler(api, gpus=2)
    options = EnvironmentOptions(
        image="gputax:1", sharing_flavour="dra", cpus=1, resource_claim="template/one-gpu", ready_timeout_s=10
    )
    place = opened(options)
    try:
        place.switch(TIME_SLICING, 2, silent)
        environments = started(place.tenants(TIME_SLICING, 2, 2, SETUP))
        workers = [described(each, f"/dev/nvidia{number}") for number, each in enumerate(environments)]
        proofs = [each.evidence(worker) for each, worker in zip(environments, workers, strict=True)]
        found = place.evidence(TIME_SLICING, proofs, workers)
        assert any("2 claims got 2 GPUs instead of one" in each for each in found.reasons), found.reasons
    finally:
        place.close()


def test_a_cluster_without_the_api_says_which_kubernetes_has_it(api: KubeApi, place: ClaimedShared) -> None:
    api.unserved.add("resource.k8s.io")
    with pytest.raises(PreflightError, match=r"does not serve resource.k8s.io/v1: .* needs Kubernetes 1.34 or newer"):
        place.switch(TIME_SLICING, 2, silent)


def test_a_missing_right_names_the_role_that_gives_it(api: KubeApi, place: ClaimedShared) -> None:
    ClaimScheduler(api)
    api.forbidden.add("POST resourceclaims")
    with pytest.raises(PreflightError, match="not permitted") as caught:
        place.switch(TIME_SLICING, 2, silent)
    assert "kubectl apply -k kubernetes/access-dra" in str(caught.value.next_step)


def test_without_rights_on_the_cluster_all_but_the_names_still_works(api: KubeApi, place: ClaimedShared) -> None:
    ClaimScheduler(api)
    api.forbidden |= {"GET resourceslices", "GET nodes"}
    place.switch(TIME_SLICING, 2, silent)
    found = judged(place, TIME_SLICING, place.tenants(TIME_SLICING, 2, 2, SETUP))
    assert found.active, found.reasons
    sized = opened(EnvironmentOptions(sharing_flavour="dra"))
    try:
        sized.switch(TIME_SLICING, 2, silent)
        with pytest.raises(PreflightError, match="the size of a tenant is unknown") as caught:
            sized.tenants(TIME_SLICING, 2, 2, SETUP)
        assert "--cpus" in str(caught.value.next_step)
    finally:
        sized.close()


def test_claims_of_killed_runs_are_deleted_and_those_of_others_stay(api: KubeApi, place: ClaimedShared) -> None:
    import platform

    cluster = ClaimScheduler(api)
    for name, owner in (("gone", f"{platform.node()}/999999999/r1"), ("alive", "elsewhere/1/r2")):
        labels = {"app.kubernetes.io/managed-by": "gputax", "app.kubernetes.io/component": "claim"}
        metadata = {"name": name, "labels": labels, "annotations": {"gputax.dev/claim-owner": owner}}
        api.objects[f"{CLAIMS}/{name}"] = {"kind": "ResourceClaim", "metadata": metadata, "spec": {"devices": {}}}
    place.switch(TIME_SLICING, 2, silent)
    assert sorted(each["metadata"]["name"] for each in cluster.claims())[0] == "alive"
    assert f"{CLAIMS}/gone" not in api.objects


def test_what_no_claim_can_ask_for_is_refused(api: KubeApi, place: ClaimedShared) -> None:
    with pytest.raises(UsageError, match="GPU proxy is not offered"):
        place.impossible(PROXY, SETUP)
    ClaimScheduler(api)
    place.switch(TIME_SLICING, 2, silent)
    with pytest.raises(UsageError, match="only 2 parts"):
        place.tenants(TIME_SLICING, 3, 2, SETUP)
    with pytest.raises(UsageError, match="no claim was made for mps"):
        place.tenants(MPS, 2, 2, SETUP)


@pytest.mark.parametrize(("name", "layer"), [("k8s", "k8s"), ("k8s+time-slicing", "time-slicing")])
def test_run_gets_its_device_by_a_claim_that_ends_with_it(api: KubeApi, name: str, layer: str) -> None:
    cluster = ClaimScheduler(api)
    options = EnvironmentOptions(image="gputax:1", sharing_flavour="dra", cpus=1, gpus=1, ready_timeout_s=10)
    with Places(options) as places:
        environment = environment_named(name, DriverChoice("software"), places)
        assert isinstance(environment, ClaimedRun)
        start_without_worker(environment)
        found = environment.evidence(described(environment))
        assert found.active, found.reasons
        assert found.layer == layer
        assert found.facts["technique"]["claims"][0]["reserved_for"] == [found.facts["pod"]]
        start_without_worker(environment)
        assert len(cluster.claims()) == 1, "the next worker has the same claim"
    assert cluster.claims() == []
    assert api.named("Pod") == []


def test_run_takes_a_claim_that_its_owner_made_and_leaves_it(api: KubeApi) -> None:
    ClaimScheduler(api)
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}
    metadata = {"name": "mine", "namespace": "gputax", "uid": "mine-uid"}
    api.objects[f"{CLAIMS}/mine"] = {"kind": "ResourceClaim", "metadata": metadata, "spec": spec}
    options = EnvironmentOptions(
        image="gputax:1", sharing_flavour="dra", cpus=1, gpus=1, resource_claim="mine", ready_timeout_s=10
    )
    with Places(options) as places:
        environment = environment_named("k8s", DriverChoice("software"), places)
        assert isinstance(environment, ClaimedRun)
        start_without_worker(environment)
        assert environment.evidence(described(environment)).active
    assert f"{CLAIMS}/mine" in api.objects
    absent = EnvironmentOptions(sharing_flavour="dra", gpus=1, resource_claim="none")
    with Places(absent) as places, pytest.raises(PreflightError, match="the ResourceClaim none does not exist"):
        start_without_worker(environment_named("k8s", DriverChoice("software"), places))


def test_without_a_device_no_claim_is_made(api: KubeApi) -> None:
    with Places(EnvironmentOptions(sharing_flavour="dra")) as places:
        assert not isinstance(environment_named("k8s", DriverChoice("cpu"), places), ClaimedRun)
    found = shared_place("k8s", OPTIONS, silent)
    assert isinstance(found, ClaimedShared)
    found.close()
    assert SLICES not in str(api.requests)


def mps_worker(environment: ClaimedKubernetes, percentage: str, memory_mb: float) -> Described:
    seen = described(environment, memory_mb=int(memory_mb))
    pipe = {"pipe_directory": "/tmp/nvidia-mps", "control_socket": True, "active_thread_percentage": percentage}
    return Described({**seen.answer, "devices": {**seen.devices, "mps": pipe}})


def test_unequal_shares_of_mps_are_one_claim_with_the_largest_cap_and_a_variable_for_each(
    api: KubeApi, place: ClaimedShared
) -> None:
    cluster = ClaimScheduler(api)
    assert isinstance(place, AsksForShares)
    place.refuse_shares(MPS, (0.3, 0.7), SETUP)
    place.switch(MPS, 2, silent)
    (claim,) = cluster.claims()
    config = claim["spec"]["devices"]["config"][0]["opaque"]["parameters"]["sharing"]["mpsConfig"]
    assert config["defaultActiveThreadPercentage"] == 70
    small, large = place.asking(MPS, (0.3, 0.7), SETUP)
    assert small.asked is not None
    assert large.asked is not None
    assert (small.asked.compute, large.asked.compute) == (0.3, 0.7)
    assert (small.asked.memory, large.asked.memory) == (pytest.approx(0.3), pytest.approx(0.7, abs=0.001))
    assert [each.entitlement.text.split(",")[0] for each in (small, large)] == ["30 % of the SMs", "70 % of the SMs"]
    environments = started([small, large])
    assert environments[0].plan().variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "30"
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in environments[1].plan().variables

    def judge(percentage: str, memory_mb: float) -> Evidence:
        workers = [mps_worker(environments[0], percentage, memory_mb), mps_worker(environments[1], "", 0.7 * 81920)]
        proofs = [each.evidence(worker) for each, worker in zip(environments, workers, strict=True)]
        return place.evidence(MPS, proofs, workers)

    good = judge("30", 0.3 * 81920)
    assert good.active, good.reasons
    assert good.fact("limits")["tenants"]["1"]["sm_percent"] == 30.0
    assert "tenant 1 asked for 30 % of the SMs, but CUDA_MPS_ACTIVE_THREAD_PERCENTAGE is not set" in str(
        judge("", 0.3 * 81920).reasons
    )
    # The claim's cap of 70 % is on, but not the tenant's own.
    assert "tenant 1 is not capped by MPS" in str(judge("30", 0.7 * 81920).reasons)


@pytest.mark.parametrize("technique", [MIG, TIME_SLICING])
def test_other_unequal_shares_cannot_be_asked_for_by_a_claim(place: ClaimedShared, technique: Any) -> None:
    with pytest.raises(UsageError, match="cannot be asked for unequal shares") as refused:
        place.refuse_shares(technique, (0.3, 0.7), SETUP)
    assert "--tech mps" in refused.value.next_step
    place.refuse_shares(technique, (0.5, 0.5), SETUP)


def test_unequal_shares_of_a_claim_of_the_users_own_are_refused(api: KubeApi) -> None:
    place = opened(replace(OPTIONS, resource_claim="mine"))
    with pytest.raises(UsageError, match="a claim of yours"):
        place.refuse_shares(MPS, (0.3, 0.7), SETUP)
    place.close()
