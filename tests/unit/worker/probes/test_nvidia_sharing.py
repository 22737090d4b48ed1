"""What a tenant sees of MPS, of MIG, and of the device behind the driver that its process has loaded."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gputax.worker.probes.nvidia import device_facts, mps_facts


def test_without_mps_there_is_nothing() -> None:
    assert mps_facts({}) == {
        "pipe_directory": None,
        "control_socket": None,
        "active_thread_percentage": None,
        "pinned_memory_limit": None,
    }


def test_a_pipe_directory_proves_nothing_without_its_socket(tmp_path: Path) -> None:
    environ = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "14"}
    assert mps_facts(environ)["control_socket"] is False
    (tmp_path / "control").write_text("a file is no socket")
    assert mps_facts(environ)["control_socket"] is False
    (tmp_path / "control").unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "control"))
        assert mps_facts(environ)["control_socket"] is True
    assert mps_facts(environ)["active_thread_percentage"] == "14"


def test_mig_slices_are_told_by_their_uuid_and_profile(nvml: Any) -> None:
    names = {"handle": "NVIDIA A100-SXM4-40GB", "slice": "NVIDIA A100-SXM4-40GB MIG 1g.5gb"}
    uuids = {"handle": "GPU-1", "slice": "MIG-1"}
    nvml.nvmlDeviceGetMaxMigDeviceCount = lambda handle: 7
    nvml.nvmlDeviceGetName = lambda handle: names[handle]
    nvml.nvmlDeviceGetUUID = lambda handle: uuids[handle]
    nvml.nvmlDeviceGetAttributes = lambda handle: SimpleNamespace(multiprocessorCount=14)

    def slice_at(handle: str, index: int) -> str:
        if index:
            raise nvml.kinds[6]()
        return "slice"

    nvml.nvmlDeviceGetMigDeviceHandleByIndex = slice_at
    facts = device_facts()
    assert facts["mig_devices"] == [{"uuid": "MIG-1", "profile": "1g.5gb", "memory_total_mb": 40960, "sm_count": 14}]
    assert facts["gpus"][0]["uuid"] == "GPU-1"


def test_a_gpu_without_mig_has_no_slices_and_its_processes_are_counted(nvml: Any) -> None:
    nvml.pids = [1, 2]
    facts = device_facts()
    assert facts["mig_devices"] == []
    assert facts["whole"] == [{"sm_count": None, "memory_total_mb": 40960, "memory_free_mb": 38912, "processes": 2}]


@pytest.mark.parametrize(
    ("cores", "capability", "sms"), [(6912, (8, 0), 108), (16896, (9, 0), 132), (2560, (7, 5), 40), (9, (99, 0), None)]
)
def test_sms_are_counted_from_cores(nvml: Any, cores: int, capability: tuple[int, int], sms: int | None) -> None:
    nvml.nvmlDeviceGetNumGpuCores = lambda handle: cores
    nvml.answers["nvmlDeviceGetCudaComputeCapability"] = capability
    assert device_facts()["whole"][0]["sm_count"] == sms
