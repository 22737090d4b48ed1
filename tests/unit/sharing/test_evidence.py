"""Each lie about a technique is refused, and the truth is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gputax.environments.environment import Described, Evidence
from gputax.kubernetes.nodes import NodeFacts
from gputax.sharing.evidence import proxy_group_evidence, technique_evidence
from gputax.sharing.flavours import offer_for
from gputax.sharing.offer import Offer, Wish

GPU, OTHER_GPU = "GPU-1111", "GPU-2222"
A100 = {"nvidia.com/gpu.memory": "81920", "nvidia.com/gpu.count": "1"}
GKE = {
    "cloud.google.com/gke-accelerator": "nvidia-tesla-a100",
    "cloud.google.com/gke-gpu-sharing-strategy": "mps",
    "cloud.google.com/gke-max-shared-clients-per-gpu": "3",
    **A100,
}
PIPE = {"pipe_directory": "/mps/pipe", "control_socket": True}
CUDA = {"name": "NVIDIA A100", "memory_total_mb": 81920.0, "memory_free_mb": 70000.0, "sm_count": 108}
# As a client of MPS sees it: fewer SMs and less free memory, but the device's own total.
CAPPED = {**CUDA, "memory_free_mb": 26800.0, "sm_count": 36}
WHOLE = [{"sm_count": 108, "memory_total_mb": 81920.0, "memory_free_mb": 70000.0, "processes": 3}]
SOFTWARE = {"name": "gputax software device", "memory_total_mb": 81920.0, "sm_count": 1}


def node(technique: str, **changes: str) -> NodeFacts:
    """Return a node that shows the technique for three tenants."""
    labels = {**A100}
    allocatable = {"nvidia.com/gpu": "1"}
    if technique in ("time-slicing", "mps"):
        labels |= {
            "nvidia.com/device-plugin.config": f"gputax-{technique}-3",
            "nvidia.com/gpu.sharing-strategy": technique,
            "nvidia.com/gpu.replicas": "3",
        }
        allocatable = {"nvidia.com/gpu.shared": "3"}
    if technique == "mig":
        labels |= {"nvidia.com/mig.config": "all-2g.20gb", "nvidia.com/mig.config.state": "success"}
        allocatable = {"nvidia.com/mig-2g.20gb": "3"}
    return NodeFacts("n", {**labels, **changes}, {}, allocatable)


def offer(technique: str) -> Offer:
    return offer_for(node(technique), Wish(technique, 3), "operator" if technique == "mig" else "device-plugin")


def tenant(number: int, resource: str = "nvidia.com/gpu.shared", **changes: Any) -> dict[str, Any]:
    return {"active": True, "pod": f"t-{number}", "node": "n", "limits": {"cpu": "1", resource: "1"}, **changes}


def worker(visible: str = GPU, **devices: Any) -> dict[str, Any]:
    return {"host": {"visible_devices": visible}, "devices": devices}


def judged(technique: str, workers: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    chosen: Offer = changes.pop("offer", None) or offer(technique)
    tenants = changes.pop("tenants", None)
    tenants = tenants or [tenant(number, chosen.resource) for number in range(1, len(workers) + 1)]
    evidences, described = [Evidence(each) for each in tenants], [Described(each) for each in workers]
    shown = changes.pop("node", None) or node(technique)
    return technique_evidence(chosen, shown, evidences, described, **changes).to_dict()


def slices(*numbers: int, **devices: Any) -> list[dict[str, Any]]:
    return [
        worker(
            f"MIG-{number}",
            gpus=[{"uuid": GPU, "compute_mode": "default"}],
            mig_devices=[{"uuid": f"MIG-{number}", "profile": "2g.20gb"}],
            cuda={**CUDA, "memory_total_mb": 19968.0},
            **devices,
        )
        for number in numbers
    ]


TRUTHS: dict[str, Callable[[], dict[str, Any]]] = {
    "time-slicing": lambda: judged(
        "time-slicing", [worker(cuda=CUDA, gpus=[{"uuid": GPU, "compute_mode": "default"}])] * 3
    ),
    "mps": lambda: judged("mps", [worker(cuda=CAPPED, whole=WHOLE, mps=PIPE)] * 3),
    "mig": lambda: judged("mig", slices(1, 2, 3)),
    "exclusive": lambda: judged("exclusive", [worker(cuda=CUDA, whole=[{"processes": 1}])]),
}


@pytest.mark.parametrize("technique", TRUTHS)
def test_the_truth_is_believed(technique: str) -> None:
    shown = TRUTHS[technique]()
    assert shown["active"], shown["reasons"]
    assert shown["reaches_device"] is True
    assert "warning" not in shown


def test_effective_limits_stand_beside_it_because_mps_means_three_things() -> None:
    assert TRUTHS["mps"]()["limits"] == {
        "flavour": "device-plugin",
        "resource": "nvidia.com/gpu.shared",
        "replicas": 3,
        "sm_percent": 33,
        "memory_cap_mb": 81920 / 3,
        "profile": None,
    }


LIES: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "different GPUs": (
        lambda: judged("time-slicing", [worker(GPU), worker(OTHER_GPU), worker(GPU)]),
        "the tenants have different GPUs: GPU-1111, GPU-2222",
    ),
    "NVML sees another GPU than the variable says": (
        lambda: judged("time-slicing", [worker(GPU), worker(GPU, gpus=[{"uuid": OTHER_GPU}]), worker(GPU)]),
        "different GPUs",
    ),
    "no GPU at all": (lambda: judged("time-slicing", [worker("void")] * 3), "unknown which GPU tenant 1 has"),
    "all GPUs": (lambda: judged("time-slicing", [worker(f"{GPU},{OTHER_GPU}")] * 3), "tenant 1 sees 2 GPUs"),
    "time-slicing that is MPS": (lambda: judged("time-slicing", [worker(mps=PIPE)] * 3), "used MPS"),
    "time-slicing in exclusive mode": (
        lambda: judged("time-slicing", [worker(gpus=[{"uuid": GPU, "compute_mode": "exclusive-process"}])] * 3),
        "compute mode is exclusive-process",
    ),
    "MPS without a pipe": (
        lambda: judged("mps", [worker(cuda=CAPPED, whole=WHOLE)] * 3),
        "CUDA_MPS_PIPE_DIRECTORY is not set",
    ),
    "MPS without a daemon": (
        lambda: judged("mps", [worker(cuda=CAPPED, whole=WHOLE, mps={**PIPE, "control_socket": False})] * 3),
        "tenant 1 finds no MPS control daemon in /mps/pipe",
    ),
    "MPS without a cap": (
        lambda: judged("mps", [worker(cuda=CUDA, whole=WHOLE, mps=PIPE)] * 3),
        "tenant 1 is not capped by MPS: the driver reports 108 of 108 SMs, 70000 MiB free of 81920 MiB; "
        "its caps are 33 % and 27307 MiB",
    ),
    "MPS on the software device without a cap": (
        lambda: judged("mps", [worker(cuda=SOFTWARE, mps=PIPE)] * 3),
        "is not capped",
    ),
    "MPS whose driver says nothing": (
        lambda: judged("mps", [worker(cuda={"name": "NVIDIA A100"}, mps=PIPE)] * 3),
        "the driver reports None of None SMs, unknown free of unknown",
    ),
    "GKE's MPS without its variables": (
        lambda: judged(
            "mps",
            [worker(cuda=CAPPED, whole=WHOLE, mps=PIPE)] * 3,
            node=NodeFacts("n", GKE, {}, {"nvidia.com/gpu": "3"}),
            offer=offer_for(NodeFacts("n", GKE, {}, {"nvidia.com/gpu": "3"}), Wish("mps", 3)),
        ),
        "does not have the variables with the MPS caps that GKE sets",
    ),
    "MIG by a whole GPU": (lambda: judged("mig", [worker(GPU)] * 3), "tenant 1 sees 0 MIG slices"),
    "one slice twice": (lambda: judged("mig", slices(1, 1, 2)), "two tenants have the same MIG slice"),
    "slices of two GPUs": (
        lambda: judged(
            "mig",
            [*slices(1, 2), {**slices(3)[0], "devices": {**slices(3)[0]["devices"], "gpus": [{"uuid": OTHER_GPU}]}}],
        ),
        "the slices are of different GPUs",
    ),
    "another profile": (
        lambda: judged(
            "mig",
            [
                *slices(1, 2),
                worker("MIG-3", gpus=[{"uuid": GPU}], mig_devices=[{"uuid": "MIG-3", "profile": "1g.10gb"}]),
            ],
        ),
        "tenant 3 has the profile 1g.10gb, not 2g.20gb",
    ),
    "a slice of unknown parent": (
        lambda: judged("mig", [worker(f"MIG-{n}", cuda={**CUDA, "memory_total_mb": 19968}) for n in (1, 2, 3)]),
        "unknown which GPU the slice",
    ),
    "exclusive with company": (
        lambda: judged("exclusive", [worker(whole=[{"processes": 3}])]),
        "2 other processes run on the GPU",
    ),
    "exclusive for two": (lambda: judged("exclusive", [worker()] * 2), "2 tenants cannot each have the whole device"),
    "another node": (
        lambda: judged("time-slicing", [worker()] * 2, tenants=[tenant(1), tenant(2, node="m")]),
        "the tenants ran on m, n, not all on n",
    ),
    "one pod twice": (
        lambda: judged("time-slicing", [worker()] * 2, tenants=[tenant(1), tenant(1)]),
        "two tenants are the same pod",
    ),
    "a pod without a share": (
        lambda: judged("time-slicing", [worker()] * 2, tenants=[tenant(1), tenant(2, "nvidia.com/gpu")]),
        "the pods of tenants 2 did not get nvidia.com/gpu.shared",
    ),
    "a tenant that is not proven itself": (
        lambda: judged("time-slicing", [worker()], tenants=[tenant(1, active=False, reasons=["it is Burstable"])]),
        "tenant 1: it is Burstable",
    ),
    "the node changed meanwhile": (
        lambda: judged(
            "mps",
            [worker(cuda=CAPPED, whole=WHOLE, mps=PIPE)] * 3,
            node=node("mps", **{"nvidia.com/gpu.sharing-strategy": "none"}),
        ),
        "the node no longer offers it: nvidia.com/gpu.sharing-strategy is none, not mps",
    ),
    "strangers on the GPU": (
        lambda: judged("time-slicing", [worker()] * 3, others_with_gpu=["default/training"]),
        "other pods use the same GPU: default/training",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_each_lie_is_refused(lie: str) -> None:
    tell, words = LIES[lie]
    shown = tell()
    assert shown["active"] is False
    assert any(words in reason for reason in shown["reasons"]), shown["reasons"]


@pytest.mark.parametrize(
    ("cuda", "whole", "believed"),
    [
        ({**CUDA, "sm_count": 36}, {"sm_count": 108}, True),
        ({**CUDA, "sm_count": 54}, {"sm_count": 108}, False),
        ({**CUDA, "memory_free_mb": 26800.0}, {"memory_free_mb": 70000.0}, True),
        # The others use the memory: it is scarce for everybody, and that is no cap.
        ({**CUDA, "memory_free_mb": 20000.0}, {"memory_free_mb": 20100.0}, False),
        ({**CUDA, "memory_total_mb": 27306.0}, {}, True),
    ],
    ids=["SMs", "too many SMs", "free memory", "scarce memory", "total memory"],
)
def test_each_sign_of_a_cap_is_enough(cuda: dict[str, Any], whole: dict[str, Any], believed: bool) -> None:
    assert judged("mps", [worker(cuda=cuda, whole=[whole], mps=PIPE)] * 3)["active"] is believed


def test_nos_has_no_cap_on_sms_so_that_only_memory_proves_it() -> None:
    here = NodeFacts("n", {**A100, "nos.nebuly.com/gpu-partitioning": "mps"}, {}, {"nvidia.com/gpu-20gb": "3"})
    chosen = offer_for(here, Wish("mps", 3))
    fewer_sms, less_memory = {**CUDA, "sm_count": 36}, {**CUDA, "memory_free_mb": 19900.0}
    assert not judged("mps", [worker(cuda=fewer_sms, whole=WHOLE, mps=PIPE)] * 3, node=here, offer=chosen)["active"]
    assert judged("mps", [worker(cuda=less_memory, whole=WHOLE, mps=PIPE)] * 3, node=here, offer=chosen)["active"]


def test_strangers_on_a_node_of_several_gpus_may_have_another() -> None:
    several = node("time-slicing", **{"nvidia.com/gpu.count": "4"})
    assert judged("time-slicing", [worker()] * 3, node=several, others_with_gpu=["default/training"])["active"]


@pytest.mark.parametrize(
    ("device", "where"), [(None, "the CPU"), ({**SOFTWARE, "memory_total_mb": 27306.0}, "the software device")]
)
def test_mechanics_without_a_gpu_are_believed_and_labelled(device: dict[str, Any] | None, where: str) -> None:
    shown = judged("mps", [worker(cuda=device, mps=PIPE)] * 3)
    assert shown["active"], shown["reasons"]
    assert shown["reaches_device"] is False
    assert shown["warning"] == f"the work ran on {where}: this says nothing about a GPU under mps"


def test_on_the_cpu_a_missing_daemon_is_still_a_lie() -> None:
    assert judged("mps", [worker(mps={**PIPE, "control_socket": False})] * 3)["active"] is False


def test_the_software_device_s_own_size_is_the_whole_where_nobody_tells_another() -> None:
    bare = NodeFacts(
        "n",
        {key: value for key, value in node("mps").labels.items() if "memory" not in key},
        {},
        {"nvidia.com/gpu.shared": "3"},
    )
    chosen = offer_for(bare, Wish("mps", 3))
    capped, whole = ({**SOFTWARE, "memory_total_mb": size} for size in (341.0, 1024.0))
    assert judged("mps", [worker(cuda=capped, mps=PIPE)] * 3, node=bare, offer=chosen)["active"]
    assert not judged("mps", [worker(cuda=whole, mps=PIPE)] * 3, node=bare, offer=chosen)["active"]


def behind_proxy(number: int, **changes: Any) -> Evidence:
    return Evidence({
        "active": True, "pod": f"t-{number}", "node": "n", "proxy_pid": 7, "device": "NVIDIA A100",
        "tenant": number, **changes,
    })  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"proxy_pid": 8}, "served by 2 proxies or devices"),
        ({"node": "m"}, "the tenants ran on different nodes: m, n"),
        ({"tenant": 1}, "the proxy counts two tenants as one"),
        ({"active": False, "reasons": ["the proxy does not answer"]}, "tenant 2: the proxy does not answer"),
    ],
)
def test_one_proxy_serves_all_tenants(changes: dict[str, Any], words: str) -> None:
    shown = proxy_group_evidence([behind_proxy(1), behind_proxy(2, **changes)]).to_dict()
    assert shown["active"] is not bool(words)
    assert words in " ".join(shown["reasons"])


def test_a_proxy_of_the_software_device_is_labelled() -> None:
    software = [behind_proxy(number, device="gputax software device") for number in (1, 2)]
    assert proxy_group_evidence(software).fact("reaches_device") is False
