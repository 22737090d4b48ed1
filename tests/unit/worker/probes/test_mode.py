"""What a process can see of its GPU's mode, from faked files and a faked NVML."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from gputax.worker.probes.host import sandbox
from gputax.worker.probes.mode import company, limiter
from tests.standins.nvml import FakeNvml, nvml

__all__ = ["nvml"]
GVISOR = "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016"


def root_with(tmp_path: Path, **files: str) -> Path:
    for name, text in files.items():
        path = tmp_path / "proc" / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("version", "cmdline", "expected"),
    [
        (GVISOR, "", "gvisor"),
        ("Linux version 6.1.0 (build@host)", "quiet systemd.unit=kata-containers.target agent.log=debug", "kata"),
        ("Linux version 6.1.0 (build@host)", "quiet", None),
    ],
)
def test_a_sandbox_is_known_by_its_kernel(tmp_path: Path, version: str, cmdline: str, expected: str | None) -> None:
    assert sandbox(root_with(tmp_path, version=version, cmdline=cmdline)) == expected


def test_a_limiter_is_known_by_its_variables_and_its_library(tmp_path: Path) -> None:
    root = root_with(tmp_path, self__maps="7f00-7f01 r-xp 0 0 0 /usr/local/vgpu/libvgpu.so\n")
    variables = {"CUDA_DEVICE_MEMORY_LIMIT_0": "3000m", "CUDA_DEVICE_SM_LIMIT": "30"}
    assert limiter(root, variables) == {"memory": "3000m", "sm_percent": "30", "loaded": True}
    assert limiter(root_with(tmp_path / "b", self__maps=""), variables) == {
        "memory": "3000m", "sm_percent": "30", "loaded": False,
    }  # fmt: skip
    assert limiter(root, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}) is None


def test_processes_beside_ours_are_named(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml.pids = [os.getpid(), 1]
    clients = [SimpleNamespace(pid=1)]
    monkeypatch.setattr(nvml, "nvmlDeviceGetMPSComputeRunningProcesses", lambda handle: clients, raising=False)
    found = company()
    assert found["known"]
    assert found["processes"] == 2
    assert [each["pid"] for each in found["foreign"]] == [1]
    assert found["foreign"][0]["name"] == Path("/proc/1/comm").read_text().strip()
    assert found["mps_clients"] == 1
    assert nvml.opened == 0, "closed again"


def test_an_nvml_without_lists_says_so(nvml: FakeNvml) -> None:
    nvml.fail["nvmlDeviceGetComputeRunningProcesses"] = 3
    found = company()
    assert (found["known"], found["foreign"], found["mps_clients"]) == (False, None, None)
