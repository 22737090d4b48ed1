"""Each mode is named from the facts that show it, and no claim goes beyond them."""

from __future__ import annotations

from typing import Any

import pytest

from gputax.doctor.mode import MODES, Facts, Mode, mode_of, refuse_unknown_modes, unmet
from gputax.environments.environment import Described, Evidence
from gputax.errors import UsageError
from gputax.kubernetes.nodes import NodeFacts

GPU = {"name": "NVIDIA A100", "uuid": "GPU-1111", "compute_mode": "default", "virtualization": "none"}
CUDA = {"name": "NVIDIA A100", "memory_total_mb": 81920.0, "memory_free_mb": 70000.0, "sm_count": 108}
WHOLE = {"sm_count": 108, "memory_total_mb": 81920.0, "memory_free_mb": 70000.0, "processes": 1}
PIPE = {"pipe_directory": "/tmp/nvidia-mps", "control_socket": True}
NOBODY = {"known": True, "processes": 1, "foreign": [], "mps_clients": 0}
NEIGHBOUR = {"known": True, "processes": 2, "foreign": [{"pid": 77, "name": "trainer"}], "mps_clients": 0}
HOST = {
    "cores_online": 64, "memory_limit_mb": 4096.0, "hypervisor": False, "hypervisor_type": None,
    "container_hints": {"docker": False, "podman": False, "kubernetes": True, "own_pid_namespace": True},
}  # fmt: skip
ALLOWANCE = {"affinity": list(range(8)), "quota_cpus": 8.0}
SOFTWARE = {"name": "gputax software device", "memory_total_mb": 1024.0, "memory_free_mb": 1024.0, "sm_count": 1}
VGPU = {"tenant": 3, "transport": "shm", "device": "gputax software device", "lost": False, "calls": {"cuInit": 1}}
STATUS = {
    "active_tenants": 2,
    "tenants": [{"id": 3, "memory_limit_bytes": 512 << 20}, {"id": 4, "memory_limit_bytes": 512 << 20}],
}


def facts(
    *,
    gpus: list[dict[str, Any]] | None = None,
    devices: dict[str, Any] | None = None,
    mode: dict[str, Any] | None = None,
    host: dict[str, Any] | None = None,
    driver: dict[str, Any] | None = None,
    **outside: Any,
) -> Facts:
    """Return the facts of an A100 in a pod with nobody else on it, with changes."""
    answer = {
        "host": {**HOST, **(host or {})},
        "cpu_allowance": ALLOWANCE,
        "devices": {"gpus": [GPU] if gpus is None else gpus, "cuda": CUDA, "whole": [WHOLE], **(devices or {})},
        "mode": {"opened": True, "why": "", "company": NOBODY, "sandbox": None, "limiter": None, **(mode or {})},
        "driver": {"vgpu": None, "library": "/usr/lib/libcuda.so.1", **(driver or {})},
    }
    return Facts(Described(answer), **outside)


def node(strategy: str) -> NodeFacts:
    return NodeFacts("n", {"nvidia.com/gpu.sharing-strategy": strategy, "nvidia.com/gpu.replicas": "4"})


SLICE = {"uuid": "MIG-1", "profile": "1g.10gb", "memory_total_mb": 9856.0, "sm_count": 14}
NO_GPU = {"opened": False, "why": "libcuda.so.1: cannot open", "company": {"known": False, "why": "no NVML"}}
LIMITS = {"memory": "3000m", "sm_percent": "30", "loaded": True}
# A recorded set of facts for each mode: the mode, its detail, whether it is proven, and a part of what is said.
RECORDED: dict[str, tuple[Facts, str, str, bool, str]] = {
    "a GPU alone": (facts(), "alone", "", True, "nothing seen from here forbids it"),
    "NVML missing": (
        facts(gpus=[], devices={"whole": []}, mode={"company": {"known": False, "why": "no NVML"}}),
        "alone", "", False, "who else is on the GPU is unknown from here (no NVML)",
    ),
    "exclusive by the driver": (
        facts(gpus=[{**GPU, "compute_mode": "exclusive-process"}]), "exclusive", "", True, "no second process",
    ),
    "exclusive by the node": (facts(node=node("none")), "exclusive", "", True, "one pod at a time"),
    "a label against a neighbour": (
        facts(node=node("none"), mode={"company": NEIGHBOUR}), "time-slicing", "", True, "take turns",
    ),
    "time-slicing by a neighbour": (facts(mode={"company": NEIGHBOUR}), "time-slicing", "", True, "take turns"),
    "time-slicing by the node": (facts(node=node("time-slicing")), "time-slicing", "", True, "take turns"),
    "a neighbour in another namespace": (
        facts(mode={"company": {"known": True, "processes": 3, "foreign": None}}), "time-slicing", "", True, "turns",
    ),
    "MPS with a cap by variable": (
        facts(devices={"mps": {**PIPE, "active_thread_percentage": "33"}, "cuda": {**CUDA, "sm_count": 36}}),
        "mps", "33 %", True, "capped at 33 % of the SMs",
    ),
    "MPS with a cap by its daemon": (
        facts(devices={"mps": PIPE, "cuda": {**CUDA, "sm_count": 27}}), "mps", "25 %", True, "capped at 25 %",
    ),
    "MPS that nothing confirms": (facts(devices={"mps": PIPE}), "mps", "", False, "without a visible cap"),
    "MPS without a cap, listed by NVML": (
        facts(devices={"mps": PIPE}, mode={"company": {**NOBODY, "mps_clients": 2}}), "mps", "", True, "client of MPS",
    ),
    "MPS beside an exclusive compute mode": (
        facts(
            gpus=[{**GPU, "compute_mode": "exclusive-process"}],
            devices={"mps": PIPE, "cuda": {**CUDA, "sm_count": 54}},
        ),
        "mps", "50 %", True, "capped at 50 %",
    ),
    "a MIG slice": (facts(devices={"mig_devices": [SLICE]}), "mig", "1g.10gb", True, "1 MIG slice of profile 1g.10gb"),
    "a MIG slice by its variable": (
        facts(gpus=[], host={"visible_devices": "MIG-GPU-1/7/0"}), "mig", "", False, "of unknown profile",
    ),
    "HAMi": (facts(mode={"limiter": LIMITS}), "limiter", "30", True, "30 % of the SMs and 3000m of memory"),
    "NVIDIA vGPU": (facts(gpus=[{**GPU, "virtualization": "vgpu"}]), "vgpu", "", True, "known to its host only"),
    "the proxy": (
        facts(gpus=[], devices={"cuda": SOFTWARE, "whole": []}, driver={"vgpu": VGPU}, proxy=STATUS),
        "proxy", "", True, "as its tenant 3, on gputax software device",
    ),
    "the software device": (
        facts(gpus=[], devices={"cuda": SOFTWARE, "whole": []}), "software", "", True, "a CPU, not a GPU",
    ),
    "no GPU": (facts(gpus=[], devices={"cuda": None, "whole": []}, mode=NO_GPU), "none", "", True, "no GPU here"),
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_set_of_facts_is_named(name: str) -> None:
    recorded, mode, detail, certain, text = RECORDED[name]
    found = mode_of(recorded)
    assert (found.name, found.detail, found.certain) == (mode, detail, certain)
    assert text in found.text
    assert found.problems == ()


def test_every_mode_is_among_the_recorded_ones() -> None:
    assert {mode for _, mode, _, _, _ in RECORDED.values()} == set(MODES)


# What looks like a mode and is not: the mode that it is, and what is said about it.
LIES: dict[str, tuple[Facts, str, str]] = {
    "set up for MPS without a daemon": (
        facts(devices={"mps": {**PIPE, "control_socket": False}}), "alone", "programs run without MPS",
    ),
    "the same beside a neighbour": (
        facts(devices={"mps": {**PIPE, "control_socket": False}}, mode={"company": NEIGHBOUR}),
        "time-slicing", "programs run without MPS",
    ),
    "a limiter that is not loaded": (facts(mode={"limiter": {**LIMITS, "loaded": False}}), "limiter", "no limit holds"),
    "a proxy beside device nodes": (
        facts(gpus=[], devices={"cuda": SOFTWARE, "whole": [], "nodes": ["/dev/nvidia0"]}, driver={"vgpu": VGPU}),
        "proxy", "the proxy can be passed by",
    ),
    "a proxy that is gone": (
        facts(gpus=[], devices={"cuda": SOFTWARE, "whole": []}, driver={"vgpu": {**VGPU, "lost": True}}),
        "proxy", "the connection to the proxy is lost",
    ),
    "a GPU whose driver fails": (
        facts(
            gpus=[],
            devices={"cuda": None, "whole": [], "nodes": ["/dev/nvidia0"]},
            mode={**NO_GPU, "why": "cuInit: CUDA error 999"},
        ),
        "none", "CUDA error 999",
    ),
    "a layer that the environment does not prove": (
        facts(evidence=Evidence.of("k8s", ["the pod's QoS class is Burstable, not Guaranteed"])),
        "alone", "Burstable",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
def test_what_contradicts_the_mode_is_a_problem(name: str) -> None:
    recorded, mode, text = LIES[name]
    found = mode_of(recorded)
    assert found.name == mode
    assert any(text in problem for problem in found.problems)


LAYERS: dict[str, tuple[Facts, tuple[str, ...]]] = {
    "a pod": (facts(), ("pod",)),
    "a pod with a claim": (facts(evidence=Evidence({"active": True, "resource_claims": ["gpu-a"]})), ("pod", "dra")),
    "gVisor": (facts(mode={"sandbox": "gvisor"}), ("pod", "gvisor")),
    "Kata": (facts(mode={"sandbox": "kata"}, host={"hypervisor": True}), ("vm", "pod", "kata")),
    "a Xen guest": (facts(host={"hypervisor": True, "hypervisor_type": "xen"}), ("xen", "pod")),
    "Xen's control domain": (
        facts(host={"hypervisor": True, "hypervisor_type": "xen", "xen_capabilities": "control_d"}), ("vm", "pod"),
    ),
    "podman": (facts(host={"container_hints": {"podman": True}}), ("container",)),
    "a virtual machine": (facts(host={"container_hints": {}, "hypervisor": True}), ("vm", "bare")),
    "a machine": (facts(host={"container_hints": {}}), ("bare",)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_what_is_around_it_is_named(name: str) -> None:
    recorded, layers = LAYERS[name]
    assert mode_of(recorded).layers == layers


def test_limits_are_those_that_the_process_sees() -> None:
    seen = mode_of(RECORDED["MPS with a cap by variable"][0]).limits
    assert seen == {
        "SMs": "36 of 108",
        "GPU memory": "70000 MiB free, 81920 MiB in total",
        "CPUs": "8 of 64",
        "CPU quota": "8 CPUs",
        "memory": "4096 MiB",
    }
    assert mode_of(RECORDED["the proxy"][0]).limits["proxy's quota"] == "512 MiB"


def test_a_sandbox_that_hides_control_groups_is_not_called_unlimited() -> None:
    hidden = facts(mode={"sandbox": "gvisor"}, host={"memory_limit_mb": None})
    assert mode_of(hidden).limits["memory"].startswith("unknown")


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("a GPU alone", "no other process"),
        ("time-slicing by a neighbour", "trainer (77)"),
        ("a neighbour in another namespace", "2 processes beside this one, in another namespace"),
        ("NVML missing", "unknown: no NVML"),
        ("the proxy", "1 other tenant of the proxy"),
        ("no GPU", "nobody: there is no GPU to share"),
    ],
)
def test_who_else_is_on_it(name: str, others: str) -> None:
    assert mode_of(RECORDED[name][0]).others == others


def test_a_tenant_that_sees_no_other_does_not_claim_to_be_the_only_one() -> None:
    at_a_place = {"tenants": [{"id": 3}]}
    recorded = facts(gpus=[], devices={"cuda": SOFTWARE, "whole": []}, driver={"vgpu": VGPU}, proxy=at_a_place)
    assert mode_of(recorded).others == "unknown: the proxy shows a tenant nobody else"


def of(name: str) -> Mode:
    return mode_of(RECORDED[name][0])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("MPS with a cap by variable", ("mps",)),
        ("MPS with a cap by variable", ("mps=33", "pod")),
        ("MPS with a cap by variable", ("mps=33%",)),
        ("a MIG slice", ("mig=1g.10gb",)),
        ("no GPU", ("none",)),
    ],
)
def test_an_expectation_that_is_met(name: str, expected: tuple[str, ...]) -> None:
    assert unmet(of(name), expected) == []


@pytest.mark.parametrize(
    ("name", "expected", "text"),
    [
        ("a GPU alone", "exclusive", "exclusive was expected, this is alone, pod"),
        ("MPS with a cap by variable", "mps=50", "mps=50 was expected, this is mps=33%, pod"),
        ("MPS that nothing confirms", "mps", "mps is likely but not proven"),
        ("a MIG slice", "xen", "xen was expected, this is mig=1g.10gb, pod"),
        ("a GPU alone", "pod=7", "pod=7 was expected"),
    ],
)
def test_an_expectation_that_is_not_met(name: str, expected: str, text: str) -> None:
    (missing,) = unmet(of(name), (expected,))
    assert text in missing


def test_an_unknown_mode_is_refused_with_what_was_meant() -> None:
    with pytest.raises(UsageError) as caught:
        refuse_unknown_modes(("hami=30",))
    assert "did you mean 'limiter'" in caught.value.next_step
