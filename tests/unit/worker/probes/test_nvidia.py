"""NVML through a fake `pynvml` that answers, refuses and fails as the real one does."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputax.worker.probes.nvidia import GpuSample, NvmlAbsence, NvmlSampler, device_facts, visible_device

Plant = Callable[[dict[str, str]], Path]


def sampler(root: Path = Path("/"), **options: Any) -> NvmlSampler:
    opened = NvmlSampler.open(root=root, **options)
    assert isinstance(opened, NvmlSampler)
    return opened


def test_facts_have_the_units_that_their_names_say(nvml: Any) -> None:
    facts = json.loads(json.dumps(device_facts()))
    assert facts["nvml"] == "ok"
    assert facts["gpus"] == [
        {
            "name": "NVIDIA A100-SXM4-40GB",
            "uuid": "GPU-5f3c8a7e-0000-1111-2222-333344445555",
            "driver_version": "550.54.15",
            "cuda_driver_version": "12.4",
            "memory_total_mb": 40960,
            "compute_capability": "8.0",
            "sm_clock_max_mhz": 1410,
            "memory_clock_max_mhz": 1215,
            "power_limit_w": 400,
            "persistence": True,
            "compute_mode": "default",
            "mig": False,
            "virtualization": "none",
            "ecc": True,
            "pci_bus_id": "00000000:07:00.0",
            "pcie_generation": 4,
            "pcie_width": 16,
        }
    ]
    assert nvml.opened == 0


def test_a_sample_has_the_units_that_its_names_say(nvml: Any) -> None:
    opened = sampler()
    assert opened.sample() == GpuSample(
        utilisation_percent=87,
        memory_used_mb=2048,
        sm_clock_mhz=1395,
        memory_clock_mhz=1215,
        temperature_c=61,
        power_w=287.5,
        energy_mj=123_456_789,
        throttle_reasons=4,
        processes=0,
        foreign_pids=(),
    )
    opened.close()
    assert nvml.opened == 0


@pytest.mark.parametrize(("code", "mode"), [(0, "default"), (2, "prohibited"), (3, "exclusive-process"), (9, None)])
def test_compute_modes_have_names(nvml: Any, code: int, mode: str | None) -> None:
    nvml.answers["nvmlDeviceGetComputeMode"] = code
    assert device_facts()["gpus"][0]["compute_mode"] == mode


@pytest.mark.parametrize(("code", "mode"), [(1, "passthrough"), (2, "vgpu"), (3, "host-vgpu"), (4, "host-vsga")])
def test_virtualization_modes_have_names(nvml: Any, code: int, mode: str) -> None:
    nvml.answers["nvmlDeviceGetVirtualizationMode"] = code
    assert device_facts()["gpus"][0]["virtualization"] == mode


def test_each_thing_a_gpu_does_not_support_is_none_and_the_rest_stays(nvml: Any) -> None:
    not_supported = 3
    refused = ("MigMode", "TotalEnergyConsumption", "UtilizationRates", "PowerUsage")
    nvml.fail = {f"nvmlDeviceGet{name}": not_supported for name in refused}
    nvml.mismatched = {"nvmlDeviceGetComputeRunningProcesses"}
    del nvml.nvmlDeviceGetVirtualizationMode
    gpu = device_facts()["gpus"][0]
    assert (gpu["mig"], gpu["virtualization"], gpu["name"]) == (None, None, "NVIDIA A100-SXM4-40GB")
    sample = sampler().sample()
    assert (sample.utilisation_percent, sample.power_w, sample.energy_mj) == (None, None, None)
    assert (sample.processes, sample.foreign_pids) == (None, None)
    assert sample.temperature_c == 61


def test_a_gpu_that_is_lost_while_sampled_gives_nothing_and_raises_nothing(nvml: Any) -> None:
    opened = sampler()
    nvml.fail = dict.fromkeys((*nvml.answers, "nvmlDeviceGetComputeRunningProcesses"), 15)
    assert opened.sample() == GpuSample()


def test_an_old_driver_is_asked_by_the_old_name_of_the_reasons(nvml: Any) -> None:
    nvml.fail = {"nvmlDeviceGetCurrentClocksEventReasons": 13}
    nvml.answers["nvmlDeviceGetCurrentClocksThrottleReasons"] = 0x40
    assert sampler().sample().throttle_reasons == 0x40


@pytest.mark.parametrize(
    ("code", "cause", "why"),
    [
        (9, "DriverNotLoaded", "Driver Not Loaded"),
        (12, "LibraryNotFound", "NVML Shared Library Not Found"),
        (18, "LibRmVersionMismatch", "RM has detected an NVML/RM version mismatch."),
    ],
)
def test_why_nvml_is_absent_is_told(nvml: Any, code: int, cause: str, why: str) -> None:
    nvml.fail = {"nvmlInit": code}
    facts = device_facts()
    assert (facts["nvml"], facts["cause"], facts["why"], facts["gpus"]) == ("absent", cause, why, [])
    assert NvmlSampler.open() == NvmlAbsence(cause, why)


def test_a_missing_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    facts = device_facts()
    assert facts["cause"] == "not-installed"
    assert "nvidia-ml-py is not installed" in facts["why"]


def test_signs_of_a_gpu_are_seen_without_nvml(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    bus = "sys/bus/pci/devices"
    files = {
        "dev/nvidia0": "",
        "dev/nvidiactl": "",
        "sys/module/nvidia/version": "550.54.15\n",
        f"{bus}/0000:07:00.0/vendor": "0x10de\n",
        f"{bus}/0000:07:00.0/class": "0x030200\n",
        f"{bus}/0000:07:00.1/vendor": "0x10de\n",
        f"{bus}/0000:07:00.1/class": "0x040300\n",
        f"{bus}/0000:00:1f.0/vendor": "0x8086\n",
        f"{bus}/0000:00:1f.0/class": "0x030000\n",
        f"{bus}/0000:00:1e.0/vendor": "0x8086\n",
        f"{bus}/0000:00:1e.0/class": "0x030000\n",
    }
    facts = device_facts(plant(files))
    assert (facts["nodes"], facts["kernel_module"], facts["pci_devices"]) == (
        ["/dev/nvidia0"],
        "550.54.15",
        1,
    )


def fake_proc(plant: Plant, namespace: str, parents: dict[int, int]) -> Path:
    files = {f"proc/{pid}/stat": f"{pid} (a) b (c) S {parent} 1 1\n" for pid, parent in parents.items()}
    root = plant({"proc/self/ns/x": "", **files})
    (root / "proc/self/ns/pid").symlink_to(f"pid:[{namespace}]")
    return root


def test_we_our_children_and_named_helpers_are_no_foreigners(nvml: Any, plant: Plant) -> None:
    own = os.getpid()
    root = fake_proc(plant, "4026531836", {700001: own, 700002: 700001, 700003: 1, 700004: 700003, 700005: 1})
    nvml.pids = [own, 700001, 700002, 700004, 700005, 700006]
    sample = sampler(root, own_pids=(700005,)).sample()
    assert sample.processes == 6
    assert sample.foreign_pids == (700004, 700006)


def test_in_a_pid_namespace_foreigners_are_known_only_if_we_find_ourselves(nvml: Any, plant: Plant) -> None:
    root = fake_proc(plant, "4026532201", {})
    opened = sampler(root)
    nvml.pids = [700001]
    assert opened.sample().foreign_pids is None
    assert opened.sample().processes == 1
    nvml.pids = [os.getpid(), 700001]
    assert opened.sample().foreign_pids == (700001,)
    nvml.pids = []
    assert opened.sample().foreign_pids == ()


@pytest.mark.parametrize(
    ("variable", "device"),
    [
        (None, "0"),
        ("", None),
        ("-1", None),
        ("2,0", "2"),
        ("GPU-5f3c,GPU-77", "GPU-5f3c"),
        ("MIG-1", "MIG-1"),
    ],
)
def test_the_first_device_that_cuda_sees(variable: str | None, device: str | None) -> None:
    environ = {} if variable is None else {"CUDA_VISIBLE_DEVICES": variable}
    assert visible_device(environ) == device


def test_a_device_is_opened_by_uuid_or_refused(nvml: Any) -> None:
    sampler(device="GPU-5f3c8a7e-0000-1111-2222-333344445555")
    assert NvmlSampler.open(device="3") == NvmlAbsence("NotFound", "NVML has no GPU 3")
    assert nvml.opened == 1


def test_the_fake_has_only_names_of_the_real_api(nvml: Any) -> None:
    names = {name for name in vars(nvml) if name.startswith(("nvml", "NVML"))}
    sys.modules.pop("pynvml")
    real = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed: its names cannot be compared")
    assert {name for name in names if not hasattr(real, name)} == set()
    assert [getattr(real, name) for name in ("NVML_CLOCK_SM", "NVML_CLOCK_MEM", "NVML_TEMPERATURE_GPU")] == [
        1,
        2,
        0,
    ]
