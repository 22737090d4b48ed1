"""A `pynvml` with one A100 that answers, refuses and fails as the real one does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

# The codes and texts of nvidia-ml-py 13.615.
ERRORS = {
    1: ("Uninitialized", "Uninitialized"),
    3: ("NotSupported", "Not Supported"),
    4: ("NoPermission", "Insufficient Permissions"),
    6: ("NotFound", "Not Found"),
    9: ("DriverNotLoaded", "Driver Not Loaded"),
    12: ("LibraryNotFound", "NVML Shared Library Not Found"),
    13: ("FunctionNotFound", "Function Not Found"),
    15: ("GpuIsLost", "GPU is lost"),
    18: ("LibRmVersionMismatch", "RM has detected an NVML/RM version mismatch."),
}


class FakeNvml(ModuleType):
    """`pynvml` with one A100 that works; `fail` makes a function raise, `pids` are the processes on it."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.fail: dict[str, int] = {}
        self.mismatched: set[str] = set()
        self.pids: list[int] = []
        self.opened = 0
        self.answers: dict[str, Any] = {
            "nvmlSystemGetDriverVersion": "550.54.15",
            "nvmlSystemGetCudaDriverVersion": 12040,
            "nvmlDeviceGetCount": 1,
            "nvmlDeviceGetName": "NVIDIA A100-SXM4-40GB",
            "nvmlDeviceGetUUID": "GPU-5f3c8a7e-0000-1111-2222-333344445555",
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=40960 << 20, free=38912 << 20, used=2048 << 20),
            "nvmlDeviceGetCudaComputeCapability": (8, 0),
            "nvmlDeviceGetMaxClockInfo": {1: 1410, 2: 1215},
            "nvmlDeviceGetClockInfo": {1: 1395, 2: 1215},
            "nvmlDeviceGetEnforcedPowerLimit": 400_000,
            "nvmlDeviceGetPersistenceMode": 1,
            "nvmlDeviceGetComputeMode": 0,
            "nvmlDeviceGetMigMode": [0, 1],
            "nvmlDeviceGetVirtualizationMode": 0,
            "nvmlDeviceGetEccMode": [1, 0],
            "nvmlDeviceGetPciInfo": SimpleNamespace(busId="00000000:07:00.0"),
            "nvmlDeviceGetCurrPcieLinkGeneration": 4,
            "nvmlDeviceGetCurrPcieLinkWidth": 16,
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=87, memory=41),
            "nvmlDeviceGetTemperature": 61,
            "nvmlDeviceGetPowerUsage": 287_500,
            "nvmlDeviceGetTotalEnergyConsumption": 123_456_789,
            "nvmlDeviceGetCurrentClocksEventReasons": 0x4,
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x4,
        }
        self.NVMLError = type("NVMLError", (Exception,), {})
        self.NVMLLibraryMismatchError = type("NVMLLibraryMismatchError", (Exception,), {})
        self.kinds = {
            code: type(f"NVMLError_{name}", (self.NVMLError,), {"__str__": lambda _, text=text: text})
            for code, (name, text) in ERRORS.items()
        }
        for name in (*self.answers, "nvmlInit", "nvmlShutdown", "nvmlDeviceGetHandleByIndex",
                     "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetComputeRunningProcesses"):  # fmt: skip
            setattr(self, name, self._function(name))

    def _function(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if name in self.fail:
                raise self.kinds[self.fail[name]]()
            if name in self.mismatched:
                raise self.NVMLLibraryMismatchError(name)
            if name not in ("nvmlInit", "nvmlShutdown") and not self.opened:
                raise self.kinds[1]()
            return self._answer(name, arguments)

        return call

    def _answer(self, name: str, arguments: tuple[Any, ...]) -> Any:
        match name:
            case "nvmlInit" | "nvmlShutdown":
                self.opened += 1 if name == "nvmlInit" else -1
                return None
            case "nvmlDeviceGetHandleByIndex" | "nvmlDeviceGetHandleByUUID":
                if arguments[0] not in (0, self.answers["nvmlDeviceGetUUID"]):
                    raise self.kinds[6]()
                return "handle"
            case "nvmlDeviceGetComputeRunningProcesses":
                return [SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in self.pids]
        answer = self.answers[name]
        return answer[arguments[1]] if isinstance(answer, dict) else answer


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """Install the fake as `pynvml`."""
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake
