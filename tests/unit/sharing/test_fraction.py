"""Fractions by HAMi, volcano-vgpu and KAI: what a pod asks for, and what its container must show."""

from __future__ import annotations

from typing import Any

import pytest

from gputax.environments.environment import Evidence
from gputax.errors import UsageError
from gputax.kubernetes.nodes import NodeFacts
from gputax.kubernetes.objects import PodPlan, Size, pod
from gputax.plan.shares import Asked
from gputax.sharing.evidence import Seen
from gputax.sharing.flavours import flavour_of, offer_for
from gputax.sharing.fraction import SLICERS, asked_of, fraction_reasons
from gputax.sharing.kubernetes.tenant_pods import TenantShape
from gputax.sharing.offer import Offer, Wish
from gputax.worker.probes.nvidia import limiter_facts

MEMORY_MB = 81920
NODE = NodeFacts(
    "n1",
    labels={"nvidia.com/gpu.memory": str(MEMORY_MB)},
    allocatable={"nvidia.com/gpu": "10", "volcano.sh/vgpu-number": "10"},
)


def offer_of(flavour: str, share: float = 0.3) -> Offer:
    base = offer_for(NODE, Wish("fraction", 2), flavour)
    return SLICERS[flavour].for_share(base, share, NODE)


def manifest(offer: Offer) -> dict[str, Any]:
    return dict(pod(TenantShape("fraction", 1, Size(1, "1Gi"), "n1", offer).shaped(PodPlan("p", "r", "image"))))


def limits(offer: Offer) -> dict[str, str]:
    found = manifest(offer)["spec"]["containers"][0]["resources"]["limits"]
    return {name: value for name, value in found.items() if name not in ("cpu", "memory")}


def test_hami_takes_cores_and_memory_as_percentages_beside_one_gpu() -> None:
    assert limits(offer_of("hami")) == {
        "nvidia.com/gpu": "1",
        "nvidia.com/gpucores": "30",
        "nvidia.com/gpumem-percentage": "30",
    }
    assert "schedulerName" not in manifest(offer_of("hami"))["spec"]


def test_volcano_has_its_own_names_and_scheduler() -> None:
    offer = offer_of("volcano-vgpu", 0.7)
    assert limits(offer) == {
        "volcano.sh/vgpu-number": "1",
        "volcano.sh/vgpu-cores": "70",
        "volcano.sh/vgpu-memory-percentage": "70",
    }
    assert manifest(offer)["spec"]["schedulerName"] == "volcano"


def test_kai_takes_an_annotation_a_queue_and_no_resource() -> None:
    found = manifest(offer_of("kai"))
    assert limits(offer_of("kai")) == {}
    assert found["metadata"]["annotations"] == {"gpu-fraction": "0.3"}
    assert found["metadata"]["labels"]["kai.scheduler/queue"] == "default-queue"
    assert found["spec"]["schedulerName"] == "kai-scheduler"
    whole = offer_of("kai", 1.0)
    assert limits(whole) == {"nvidia.com/gpu": "1"}
    assert "annotations" not in manifest(whole)["metadata"]


def test_kai_is_not_asked_for_compute_and_hami_is() -> None:
    assert asked_of(offer_of("hami"), 0.3, NODE) == Asked(0.3, 0.3)
    assert asked_of(offer_of("kai"), 0.3, NODE) == Asked(None, 0.3)


def test_nodes_show_hami_and_volcano_and_never_kai() -> None:
    plain = NodeFacts("n", allocatable={"nvidia.com/gpu": "1"})
    assert flavour_of(plain) == "device-plugin"
    assert flavour_of(NODE) == "volcano-vgpu"
    assert flavour_of(NodeFacts("n", annotations={"hami.io/node-nvidia-register": "GPU-1"})) == "hami"


def test_other_techniques_of_a_slicer_and_fractions_of_others_are_refused() -> None:
    assert "not mps" in offer_for(NODE, Wish("mps", 2), "hami").refusal
    with pytest.raises(UsageError, match="device-plugin does not give tenants fractions"):
        offer_for(NODE, Wish("fraction", 2), "device-plugin")


LIMITED = {"sm_limit": "30", "memory_limit": "24576m", "preloaded": ["/usr/local/vgpu/libvgpu.so"]}


def seen(flavour: str, limiter: dict[str, Any], total_mb: float = 24576.0, number: int = 1) -> Seen:
    devices = {
        "limiter": limiter,
        "gpus": [{"uuid": "GPU-1"}],
        "cuda": {"name": "NVIDIA A100", "memory_total_mb": total_mb},
    }
    facts = {"active": True, "limits": limits(offer_of(flavour))}
    return Seen(number, Evidence(facts), devices, "GPU-1")


def test_a_container_with_the_limits_that_were_asked_for_proves_the_fraction() -> None:
    assert fraction_reasons([seen("hami", LIMITED)], NODE, offer_of("hami")) == []
    assert fraction_reasons([seen("volcano-vgpu", LIMITED)], NODE, offer_of("volcano-vgpu")) == []
    assert fraction_reasons([seen("kai", {"gpu_portion": "0.3"}, MEMORY_MB)], NODE, offer_of("kai")) == []


@pytest.mark.parametrize(
    ("limiter", "total_mb", "reason"),
    [
        ({}, 24576.0, "CUDA_DEVICE_SM_LIMIT is None"),
        ({**LIMITED, "sm_limit": "0"}, 24576.0, "CUDA_DEVICE_SM_LIMIT is 0"),
        ({**LIMITED, "memory_limit": None}, 24576.0, "CUDA_DEVICE_MEMORY_LIMIT_0 is not set"),
        ({**LIMITED, "preloaded": None}, 24576.0, "does not load HAMi-core"),
        (LIMITED, MEMORY_MB, "is not limited to 24576 MiB: the driver reports 81920 MiB"),
    ],
)
def test_a_limit_that_is_not_seen_is_no_proof(limiter: dict[str, Any], total_mb: float, reason: str) -> None:
    assert reason in "; ".join(fraction_reasons([seen("hami", limiter, total_mb)], NODE, offer_of("hami")))


def test_a_pod_that_kai_did_not_place_and_tenants_of_two_gpus_are_no_proof() -> None:
    assert "was not placed by KAI" in "; ".join(fraction_reasons([seen("kai", {})], NODE, offer_of("kai")))
    other = seen("hami", LIMITED, number=2)
    apart = Seen(2, other.evidence, {**other.devices, "gpus": [{"uuid": "GPU-2"}]}, "GPU-2")
    reasons = fraction_reasons([seen("hami", LIMITED), apart], NODE, offer_of("hami"))
    assert reasons == ["the tenants have different GPUs: GPU-1, GPU-2"]


def test_the_worker_reads_what_was_left_in_its_container(tmp_path: Any) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ld.so.preload").write_text("/usr/local/vgpu/libvgpu.so\n/lib/other.so\n")
    environ = {"CUDA_DEVICE_SM_LIMIT": "30", "CUDA_DEVICE_MEMORY_LIMIT_0": "24576m"}
    assert limiter_facts(tmp_path, environ) == LIMITED
    assert limiter_facts(tmp_path / "nowhere", {"GPU_PORTION": "0.3"}) == {"gpu_portion": "0.3"}
    assert limiter_facts(tmp_path / "nowhere", {}) == {}
