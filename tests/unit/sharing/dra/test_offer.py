"""Which claim a technique becomes, and what its tenants may use: all without a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.dra_devices import slices
from gputax.errors import PreflightError, UsageError
from gputax.kubernetes.claims import ClaimPlan, claim_state, devices_in
from gputax.sharing.dra.offer import Asked, Choice, asked_for, offer_of

DEVICES = devices_in(slices(2, "n", 3))
KNOWN, UNKNOWN = Choice(devices=DEVICES), Choice()


def manifest(asked: Asked) -> dict[str, Any]:
    plan = ClaimPlan(
        "c", "run", "ns", asked.offer.resource, asked.requests, asked.selectors, asked.same, asked.parameters
    )
    return plan.manifest()


def test_the_slices_of_the_driver_are_read_with_the_newest_generation_alone() -> None:
    old = slices(1, "n", 2)
    assert devices_in([*old, *slices(2, "n", 3)]) == DEVICES
    gpu = DEVICES[0]
    assert (gpu.kind, gpu.node, gpu.memory_mb) == ("gpu", "n", 81920)
    assert gpu.identity == "gpu.nvidia.com/n/gpu-0"
    mig = DEVICES[1]
    assert (mig.kind, mig.profile, mig.gpu) == ("mig", "1g.10gb", gpu.uuid)
    assert devices_in(slices(1, "n", 1), driver="other") == []


def test_exclusive_is_one_gpu_without_parameters() -> None:
    asked = asked_for("exclusive", 1, KNOWN)
    assert manifest(asked)["spec"] == {
        "devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}
    }
    assert asked.offer.entitlement.share == 1.0


def test_time_slicing_sets_parameters_only_for_a_given_length() -> None:
    # The parameters need a feature gate of the driver; taking turns does not.
    assert asked_for("time-slicing", 3, KNOWN).parameters == {}
    asked = asked_for("time-slicing", 3, Choice(time_slice="Long", devices=DEVICES))
    (config,) = manifest(asked)["spec"]["devices"]["config"]
    assert config == {
        "requests": ["gpu"],
        "opaque": {
            "driver": "gpu.nvidia.com",
            "parameters": {
                "apiVersion": "resource.nvidia.com/v1beta1",
                "kind": "GpuConfig",
                "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}},
            },
        },
    }
    with pytest.raises(UsageError, match="'Eternal' is not a time slice"):
        asked_for("time-slicing", 3, Choice(time_slice="Eternal"))


def test_mps_caps_sms_and_where_the_size_is_known_memory() -> None:
    asked = asked_for("mps", 4, KNOWN)
    sharing = asked.parameters["sharing"]
    assert sharing["mpsConfig"] == {
        "defaultActiveThreadPercentage": 25,
        "defaultPinnedDeviceMemoryLimit": "20480Mi",
    }
    assert (asked.offer.sm_percent, asked.offer.memory_mb) == (25, 20480)
    assert asked.offer.entitlement.text == "25 % of the SMs, 20.0 GB"

    blind = asked_for("mps", 4, UNKNOWN)
    assert blind.parameters["sharing"]["mpsConfig"] == {"defaultActiveThreadPercentage": 25}
    assert blind.offer.entitlement.text == "25 % of the SMs; no cap on memory"
    assert not blind.offer.caps_memory
    assert asked_for("mps", 1, KNOWN).offer.sm_percent == 50, "a single tenant is capped too"
    with pytest.raises(UsageError, match="at most 48 tenants"):
        asked_for("mps", 49, KNOWN)


def test_mig_is_one_claim_with_a_request_per_tenant_all_of_one_gpu() -> None:
    asked = asked_for("mig", 2, KNOWN)
    devices = manifest(asked)["spec"]["devices"]
    assert [each["name"] for each in devices["requests"]] == ["slice-1", "slice-2"]
    assert devices["requests"][0]["exactly"]["selectors"] == [
        {"cel": {"expression": "device.attributes['gpu.nvidia.com'].profile == '3g.40gb'"}}
    ]
    assert devices["constraints"] == [
        {"requests": ["slice-1", "slice-2"], "matchAttribute": "gpu.nvidia.com/parentUUID"}
    ]
    assert (asked.offer.resource, asked.offer.profile) == ("mig.nvidia.com", "3g.40gb")
    assert (asked.request_of(1), asked.request_of(2)) == ("slice-1", "slice-2")
    assert asked_for("mig", 7, KNOWN).offer.profile == "1g.10gb", "the largest of which there are enough"
    assert "constraints" not in manifest(asked_for("mig", 1, KNOWN))["spec"]["devices"]


def test_later_claims_ask_for_the_gpu_of_the_first() -> None:
    gpu = DEVICES[0].uuid
    asked = asked_for("time-slicing", 2, Choice(gpu=gpu, devices=DEVICES))
    assert asked.selectors == (f"device.attributes['gpu.nvidia.com'].uuid == '{gpu}'",)
    sliced = asked_for("mig", 2, Choice(gpu=gpu, devices=DEVICES))
    assert sliced.selectors[1] == f"device.attributes['gpu.nvidia.com'].parentUUID == '{gpu}'"


@pytest.mark.parametrize(
    ("technique", "parts", "choice", "words"),
    [
        ("exclusive", 1, Choice(devices=[]), "no device at all"),
        ("exclusive", 1, Choice(node="other", devices=DEVICES), "no device at all"),
        ("exclusive", 1, Choice(devices=[each for each in DEVICES if each.kind == "mig"]), "no whole GPU"),
        ("mig", 2, Choice(devices=DEVICES[:1]), "no GPU with 2 equal MIG slices"),
        ("mig", 3, Choice(mig_profile="3g.40gb", devices=DEVICES), "no GPU with 3 slices 3g.40gb"),
    ],
)
def test_what_the_cluster_is_known_not_to_have_is_refused_before_a_claim_is_made(
    technique: str, parts: int, choice: Choice, words: str
) -> None:
    with pytest.raises(PreflightError, match=words) as caught:
        asked_for(technique, parts, choice)
    assert "kubectl get resourceslices" in str(caught.value.next_step)


def test_without_the_right_to_read_slices_the_profile_must_be_given() -> None:
    with pytest.raises(UsageError, match="not permitted to list resourceslices"):
        asked_for("mig", 2, UNKNOWN)
    assert asked_for("mig", 2, Choice(mig_profile="1g.10gb")).offer.profile == "1g.10gb"
    with pytest.raises(UsageError, match="is not a MIG profile"):
        asked_for("mig", 2, Choice(mig_profile="big"))
    with pytest.raises(UsageError, match="does not exist with --sharing-flavour dra"):
        asked_for("cpu-quota", 2, UNKNOWN)


def test_a_claim_of_the_user_says_itself_what_it_asks_for() -> None:
    claim = claim_state(manifest(asked_for("mps", 4, KNOWN)))
    offer = offer_of(claim, "mps")
    assert (offer.sm_percent, offer.memory_mb) == (25, 20480)
    with pytest.raises(PreflightError, match="asks for MPS, which is not time-slicing"):
        offer_of(claim, "time-slicing")
    plain = claim_state(manifest(asked_for("exclusive", 1, KNOWN)))
    assert offer_of(plain, "time-slicing").technique == "time-slicing"
    with pytest.raises(PreflightError, match="asks for no strategy, which is not mps"):
        offer_of(plain, "mps")
