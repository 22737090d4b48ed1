"""What a claim proves and what it does not: allocation, reservation, one device, and what the worker sees of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from e2e.device_offer import gpu_uuid
from e2e.dra_devices import slices
from gputax.environments.environment import Described, Evidence
from gputax.kubernetes.claims import Allocated, ClaimState, Holder, claim_state, claims_of, devices_in
from gputax.sharing.dra.evidence import Claimed, claim_evidence
from gputax.sharing.dra.offer import Choice, asked_for

DEVICES = devices_in(slices(2, "n", 1))
MPS_CONFIG = {"sharing": {"strategy": "MPS"}}


def allocated(device: str = "gpu-0", request: str = "gpu") -> Allocated:
    return Allocated(request, "gpu.nvidia.com", "n", device)


def claim(*devices: Allocated, pods: int = 2, **more: Any) -> ClaimState:
    holders = tuple(Holder("pods", f"p{number}", f"u{number}") for number in range(1, pods + 1))
    return ClaimState("c", "claim-uid", devices or (allocated(),), holders, **more)


def tenants(state: ClaimState | None, count: int = 2, **more: Any) -> list[Claimed]:
    return [Claimed(number, f"u{number}", state, "c", made_uid="claim-uid", **more) for number in range(1, count + 1)]


def worker(node: str = "/dev/nvidia0", memory_mb: int = 81920, **more: Any) -> Described:
    cuda = {"name": "gputax software device", "memory_total_mb": memory_mb, "memory_free_mb": memory_mb}
    return Described({"devices": {"nodes": [node], "cuda": cuda, **more}, "host": {"visible_devices": "void"}})


def own(number: int) -> Evidence:
    return Evidence.of("k8s", [], {"pod": f"p{number}", "pod_uid": f"u{number}", "node": "n"})


def proof(technique: str, claimed: list[Claimed], workers: list[Described], devices: Any = DEVICES) -> Evidence:
    offer = asked_for(technique, max(1, len(claimed)), Choice(devices=DEVICES)).offer
    return claim_evidence(offer, claimed, devices, [own(each.number) for each in claimed], workers)


def test_two_pods_of_one_claim_with_one_gpu_share_it() -> None:
    found = proof("time-slicing", tenants(claim()), [worker(), worker()])
    assert found.active, found.reasons
    assert found.facts["claims"][0]["reserved_for"] == ["p1", "p2"]
    assert found.facts["device_ids"] == [[f"n/gpu-0 ({gpu_uuid(0)})"]] * 2
    assert found.facts["limits"]["flavour"] == "dra"
    assert "says nothing about a GPU" in found.warning


def test_without_the_right_to_read_slices_the_name_of_the_device_is_the_proof() -> None:
    found = proof("time-slicing", tenants(claim()), [worker(), worker()], devices=None)
    assert found.active, found.reasons
    assert found.facts["device_ids"] == [["n/gpu-0"]] * 2
    assert found.facts["resource_slices"] == "not permitted to list them"


@pytest.mark.parametrize(
    ("claimed", "reason"),
    [
        (tenants(None), "the ResourceClaim c of tenant 1 was deleted during the measurement"),
        (tenants(claim(ending=True)), "the ResourceClaim c was deleted during the measurement"),
        (tenants(replace(claim(), uid="another")), "was replaced during the measurement"),
        (tenants(claim(pods=1)), "is not reserved for the pod of tenant 2"),
        (tenants(claim(pods=3)), "is also reserved for others: p3"),
        (tenants(ClaimState("c", "claim-uid", holders=claim().holders)), "tenant 1 got 0 devices by c, not one"),
        (tenants(claim(Allocated("gpu", "other.example", "n", "gpu-0"))), "of the driver other.example"),
        ([Claimed(1, "u1", None, "")], "the pod of tenant 1 names no ResourceClaim"),
        (tenants(claim(allocated("gpu-9"))), "is in no ResourceSlice"),
    ],
)
def test_a_claim_that_is_not_the_tenants_own_proves_nothing(claimed: list[Claimed], reason: str) -> None:
    found = proof("time-slicing", claimed, [worker() for _ in claimed])
    assert not found.active
    assert any(reason in each for each in found.reasons), found.reasons


def test_two_claims_with_a_gpu_each_are_told_apart_from_sharing() -> None:
    first = replace(claim(pods=1), name="a")
    holders = (Holder("pods", "p2", "u2"),)
    second = ClaimState("b", "b-uid", (allocated("gpu-1"),), holders)
    claimed = [Claimed(1, "u1", first, "a"), Claimed(2, "u2", second, "b")]
    found = proof("time-slicing", claimed, [worker(), worker("/dev/nvidia1")])
    assert not found.active
    words = f"2 claims got 2 GPUs instead of one, so the tenants share nothing: n/gpu-0 ({gpu_uuid(0)})"
    assert any(words in each for each in found.reasons), found.reasons
    # Two claims that have a share each of the same GPU do share it.
    second = ClaimState("b", "b-uid", (replace(allocated(), share="s2"),), holders)
    shared = [Claimed(1, "u1", first, "a"), Claimed(2, "u2", second, "b")]
    assert proof("time-slicing", shared, [worker(), worker()]).active


def test_a_driver_that_prepares_another_gpu_than_was_allocated_is_found_out() -> None:
    found = proof("time-slicing", tenants(claim()), [worker("/dev/nvidia1"), worker("/dev/nvidia1")])
    assert not found.active
    assert "tenant 1 has /dev/nvidia1, but its claim got gpu-0, which is /dev/nvidia0" in found.reasons
    # NVML names the GPU itself.
    liar = worker(gpus=[{"uuid": gpu_uuid(1)}])
    found = proof("time-slicing", tenants(claim()), [liar, liar])
    assert any(f"sees the GPU {gpu_uuid(1)}, but its claim got gpu-0" in each for each in found.reasons)


def test_mps_needs_its_daemon_and_its_cap() -> None:
    pipe: dict[str, Any] = {"mps": {"pipe_directory": "/tmp/nvidia-mps", "control_socket": True}}
    state = claim(parameters=(MPS_CONFIG,))
    capped = worker(memory_mb=81920 // 2, **pipe)
    assert proof("mps", tenants(state), [capped, capped]).active
    by_name = worker(mps={"pipe_directory": "/tmp/nvidia-mps", "control_socket": False})
    reasons = proof("mps", tenants(state), [by_name, by_name]).reasons
    assert any("finds no MPS control daemon" in each for each in reasons)
    assert any("is not capped by MPS" in each for each in reasons)
    other = proof("mps", tenants(claim()), [capped, capped]).reasons
    assert "the ResourceClaim c was allocated with the strategy none" in other


def test_mig_slices_must_be_of_one_gpu_of_the_profile_and_of_its_size() -> None:
    def sliced(first: str, second: str) -> list[Claimed]:
        state = claim(allocated(first, "slice-1"), allocated(second, "slice-2"))
        return [replace(each, request=f"slice-{each.number}") for each in tenants(state)]

    small = [worker(memory_mb=40960), worker(memory_mb=40960)]
    good = sliced("gpu-0-mig-3g40gb-3-0", "gpu-0-mig-3g40gb-3-1")
    assert proof("mig", good, small).active
    assert proof("mig", good, small, devices=None).active
    same = proof("mig", sliced("gpu-0-mig-3g40gb-3-0", "gpu-0-mig-3g40gb-3-0"), small)
    assert "two tenants got the same slice" in same.reasons
    apart = sliced("gpu-0-mig-3g40gb-3-0", "gpu-1-mig-3g40gb-3-0")
    workers = [small[0], worker("/dev/nvidia1", 40960)]
    for devices in (DEVICES, None):
        reasons = proof("mig", apart, workers, devices).reasons
        assert any("the slices are of different GPUs" in each for each in reasons), reasons
    wrong = proof("mig", sliced("gpu-0-mig-1g10gb-1-0", "gpu-0-mig-1g10gb-1-1"), small)
    assert "tenant 1 has the profile 1g.10gb, not 3g.40gb" in wrong.reasons
    whole = proof("mig", good, [worker(), worker()])
    assert any("does not have a slice of 40960 MiB" in each for each in whole.reasons)


def test_a_claim_as_the_api_server_shows_it_is_read() -> None:
    state = claim_state(
        {
            "metadata": {"name": "c", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "status": {
                "allocation": {
                    "devices": {
                        "results": [
                            {"request": "gpu/big", "driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-1",
                             "shareID": "s"},
                        ],
                        "config": [
                            {"source": "FromClass", "opaque": {"driver": "other", "parameters": {"a": 1}}},
                            {"source": "FromClaim", "opaque": {"driver": "gpu.nvidia.com", "parameters": MPS_CONFIG}},
                        ],
                    },
                    "nodeSelector": {
                        "nodeSelectorTerms": [
                            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
                        ]
                    },
                },
                "reservedFor": [{"resource": "pods", "name": "p", "uid": "pu"}],
            },
        }
    )  # fmt: skip
    assert state.allocated == (Allocated("gpu", "gpu.nvidia.com", "n", "gpu-1", "s"),)
    assert state.holders == (Holder("pods", "p", "pu"),)
    assert state.ending
    assert state.node == "n"
    assert state.sharing == {"strategy": "MPS"}
    assert state.allocated[0].minor == "1"
    assert Allocated("gpu", "d", "n", "card7").minor == ""


def test_the_claim_of_a_pod_is_found_also_if_a_template_made_it() -> None:
    container = {"resources": {"claims": [{"name": "gpu", "request": "slice-2"}]}}
    spec = {"containers": [container], "resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]}
    assert claims_of({"spec": spec}) == [("mine", "slice-2")]
    spec = {"containers": [container], "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}
    status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "made"}]}
    assert claims_of({"spec": spec, "status": status}) == [("made", "slice-2")]
    assert claims_of({}) == []
