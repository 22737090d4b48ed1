"""NVIDIA GPUs through NVML, and how one is shared (MPS, MIG), seen from inside; unsupported values are None."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputax.worker.probes.driver_library import NVML_SONAME, SONAME
from gputax.worker.probes.files import read_text
from gputax.worker.probes.host import MB, own_pid_namespace

SM_COUNT_ATTRIBUTE = 16
NAME_BYTES = 256
PIPE_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
PERCENTAGE_VARIABLE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MEMORY_VARIABLE = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
CONTROL = "control"
"""The control daemon's own name for its socket in the pipe directory."""
# NVML counts cores and not SMs: FP32 cores of one SM by compute capability, from NVIDIA's programming guide.
CORES_PER_SM = {
    **dict.fromkeys(((7, 0), (7, 2), (7, 5), (8, 0)), 64),
    **dict.fromkeys(((8, 6), (8, 7), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0), (12, 1)), 128),
}
# HAMi-core's library, as its device plugins mount it.
LIMITER = "libvgpu.so"
_PROFILE = re.compile(r"MIG\s+(\S+)\s*$")


def mps_facts(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return MPS as a client sees it; a variable alone is not evidence, so the daemon's socket is checked."""
    directory = environ.get(PIPE_VARIABLE)
    return {
        "pipe_directory": directory,
        "control_socket": _is_socket(Path(directory) / CONTROL) if directory else None,
        "active_thread_percentage": environ.get(PERCENTAGE_VARIABLE),
        "pinned_memory_limit": environ.get(MEMORY_VARIABLE),
    }


def limiter_facts(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the fraction that HAMi, volcano-vgpu or KAI left in this container; empty if none did."""
    memory = environ.get("CUDA_DEVICE_MEMORY_LIMIT_0") or environ.get("CUDA_DEVICE_MEMORY_LIMIT")
    preloaded = [line for line in (read_text(root / "etc/ld.so.preload") or "").split() if LIMITER in line]
    found = {
        "sm_limit": environ.get("CUDA_DEVICE_SM_LIMIT"),
        "memory_limit": memory,
        "gpu_portion": environ.get("GPU_PORTION"),
        "preloaded": preloaded or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def mig_devices(nvml: Any, handle: Any, ask: Any) -> list[dict[str, Any]]:
    """Return the MIG slices of a GPU that this process may see."""
    found = []
    for index in range(ask(nvml, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        device = ask(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
        if device is None:
            continue
        name, memory = ask(nvml, "nvmlDeviceGetName", device), ask(nvml, "nvmlDeviceGetMemoryInfo", device)
        attributes = ask(nvml, "nvmlDeviceGetAttributes", device)
        profile = _PROFILE.search(str(name or ""))
        found.append(
            {
                "uuid": ask(nvml, "nvmlDeviceGetUUID", device),
                "profile": profile[1] if profile else None,
                "memory_total_mb": None if memory is None else memory.total / MB,
                "sm_count": getattr(attributes, "multiprocessorCount", None),
            }
        )
    return found


def whole_device(nvml: Any, handle: Any, ask: Any) -> dict[str, Any]:
    """Return the device's own sizes, which no cap changes: NVML reports them independently of MPS."""
    cores = ask(nvml, "nvmlDeviceGetNumGpuCores", handle)
    per_sm = CORES_PER_SM.get(tuple(ask(nvml, "nvmlDeviceGetCudaComputeCapability", handle) or ()))
    memory = ask(nvml, "nvmlDeviceGetMemoryInfo", handle)
    running = ask(nvml, "nvmlDeviceGetComputeRunningProcesses", handle)
    return {
        "sm_count": cores // per_sm if cores and per_sm else None,
        "memory_total_mb": None if memory is None else memory.total / MB,
        "memory_free_mb": None if memory is None else memory.free / MB,
        "processes": None if running is None else len(running),
    }


def cuda_device() -> dict[str, Any] | None:
    """Return the first device as the driver reports it to this process; None if no driver is loaded.

    Under MPS the SM count and the free memory are the tenant's caps, while the total stays the device's own. Nothing is
    loaded that is not loaded already.
    """
    try:
        library = ctypes.CDLL(SONAME, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None
    try:
        return _asked(library)
    except AttributeError:
        return None  # a library with that name that is not a driver


def _asked(library: ctypes.CDLL) -> dict[str, Any] | None:
    device, name = ctypes.c_int(), ctypes.create_string_buffer(NAME_BYTES)
    memory, free, total = (ctypes.c_size_t() for _ in range(3))
    multiprocessors = ctypes.c_int()
    if library.cuDeviceGet(ctypes.byref(device), 0):
        return None
    named = library.cuDeviceGetName(name, NAME_BYTES, device) == 0
    sized = library.cuDeviceTotalMem_v2(ctypes.byref(memory), device) == 0
    counted = library.cuDeviceGetAttribute(ctypes.byref(multiprocessors), SM_COUNT_ATTRIBUTE, device) == 0
    # Needs a context of the calling thread, created by an engine; fails without one.
    asked = library.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return {
        "name": name.value.decode(errors="replace") if named else None,
        "memory_total_mb": memory.value / MB if sized else None,
        "memory_free_mb": free.value / MB if asked else None,
        "sm_count": multiprocessors.value if counted else None,
    }


def _is_socket(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode)


COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
VIRTUALIZATION_MODES = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host-vgpu", 4: "host-vsga"}


@dataclass(frozen=True)
class GpuSample:
    """What one GPU was doing at one moment."""

    utilisation_percent: float | None = None
    memory_used_mb: float | None = None
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    energy_mj: int | None = None
    """Millijoules since the driver was loaded."""
    throttle_reasons: int | None = None
    """NVML's bit mask of clock event reasons."""
    processes: int | None = None
    foreign_pids: tuple[int, ...] | None = None
    """Processes on the GPU other than this one and its children; None if pids cannot be distinguished."""


@dataclass(frozen=True)
class NvmlAbsence:
    """Why NVML cannot be used."""

    cause: str
    """`not-installed`, `tenant`, or the tail of NVML's own error name: `LibraryNotFound`, `DriverNotLoaded`, ..."""
    why: str


def load_nvml() -> Any:
    """Return the initialised `pynvml` module, or the reason why it is missing; shut it down after use."""
    try:
        import pynvml
    except ImportError as error:
        return NvmlAbsence("not-installed", f"nvidia-ml-py is not installed ({error})")
    if _is_the_tenants():
        return NvmlAbsence(
            "tenant", "NVML is libvgpu's own: its answers would travel through the proxy that is measured"
        )
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return NvmlAbsence(type(error).__name__.removeprefix("NVMLError_"), str(error))
    return pynvml


def _is_the_tenants() -> bool:
    """Whether the NVML that is found here is the one beside libvgpu."""
    try:
        return hasattr(ctypes.CDLL(NVML_SONAME), "gputaxNvml")
    except OSError:
        return False


def device_facts(root: Path = Path("/")) -> dict[str, Any]:
    """Return every GPU and the driver, or `"nvml": "absent"` with the reason; and other signs of a GPU."""
    traces = {**_traces(root), "mps": mps_facts(), "limiter": limiter_facts(root), "cuda": cuda_device()}
    nvml = load_nvml()
    if isinstance(nvml, NvmlAbsence):
        return {"nvml": "absent", "cause": nvml.cause, "why": nvml.why, "gpus": [], **traces}
    try:
        count = ask(nvml, "nvmlDeviceGetCount") or 0
        asked = [ask(nvml, "nvmlDeviceGetHandleByIndex", index) for index in range(count)]
        handles = [handle for handle in asked if handle is not None]
        return {
            "nvml": "ok",
            "cause": None,
            "why": None,
            "gpus": [_gpu_facts(nvml, handle) for handle in handles],
            "mig_devices": [each for handle in handles for each in mig_devices(nvml, handle, ask)],
            "whole": [whole_device(nvml, handle, ask) for handle in handles],
            **traces,
        }
    finally:
        ask(nvml, "nvmlShutdown")


def ask(nvml: Any, function: str, *arguments: object) -> Any:
    """Call one NVML function; None if the GPU, the driver or this nvidia-ml-py does not have it."""
    # An old driver under a new nvidia-ml-py raises a mismatch error that is not an NVMLError.
    mismatch = getattr(nvml, "NVMLLibraryMismatchError", nvml.NVMLError)
    try:
        return getattr(nvml, function)(*arguments)
    except (nvml.NVMLError, mismatch, AttributeError):
        return None


class NvmlSampler:
    """Reads one GPU repeatedly; open with `NvmlSampler.open`, close when done."""

    def __init__(self, nvml: Any, handle: Any, own_pids: Iterable[int], root: Path) -> None:
        self._nvml = nvml
        self._handle = handle
        self._root = root
        self._translated = own_pid_namespace(root) is False
        self._is_ours = dict.fromkeys((os.getpid(), *own_pids), True)
        # Drivers before 535 know the reasons only by their older name.
        new = "nvmlDeviceGetCurrentClocksEventReasons"
        known = ask(nvml, new, handle) is not None
        self._reasons = new if known else "nvmlDeviceGetCurrentClocksThrottleReasons"

    @staticmethod
    def open(
        device: str | None = None, own_pids: Iterable[int] = (), root: Path = Path("/")
    ) -> NvmlSampler | NvmlAbsence:
        """Open the GPU by index or UUID (default: the first that CUDA may see).

        `own_pids` names processes that belong to the measurement but are not our children, such as
        a GPU proxy.
        """
        selected = visible_device() if device is None else device
        if selected is None:
            return NvmlAbsence("hidden", "CUDA_VISIBLE_DEVICES hides every GPU")
        nvml = load_nvml()
        if isinstance(nvml, NvmlAbsence):
            return nvml
        if selected.isdigit():
            handle = ask(nvml, "nvmlDeviceGetHandleByIndex", int(selected))
        else:
            handle = ask(nvml, "nvmlDeviceGetHandleByUUID", selected)
        if handle is None:
            ask(nvml, "nvmlShutdown")
            return NvmlAbsence("NotFound", f"NVML has no GPU {selected}")
        return NvmlSampler(nvml, handle, own_pids, root)

    def sample(self) -> GpuSample:
        """Read all values now."""
        nvml, handle = self._nvml, self._handle
        utilisation = ask(nvml, "nvmlDeviceGetUtilizationRates", handle)
        memory = ask(nvml, "nvmlDeviceGetMemoryInfo", handle)
        milliwatts = ask(nvml, "nvmlDeviceGetPowerUsage", handle)
        running = ask(nvml, "nvmlDeviceGetComputeRunningProcesses", handle)
        pids = None if running is None else {process.pid for process in running}
        return GpuSample(
            utilisation_percent=None if utilisation is None else utilisation.gpu,
            memory_used_mb=None if memory is None else memory.used / MB,
            sm_clock_mhz=ask(nvml, "nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM),
            memory_clock_mhz=ask(nvml, "nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_MEM),
            temperature_c=ask(nvml, "nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU),
            power_w=None if milliwatts is None else milliwatts / 1e3,
            energy_mj=ask(nvml, "nvmlDeviceGetTotalEnergyConsumption", handle),
            throttle_reasons=ask(nvml, self._reasons, handle),
            processes=None if pids is None else len(pids),
            foreign_pids=None if pids is None else self._foreign(pids),
        )

    def mps_clients(self) -> int | None:
        """Return how many clients of MPS are on the GPU; None if NVML cannot tell."""
        clients = ask(self._nvml, "nvmlDeviceGetMPSComputeRunningProcesses", self._handle)
        return None if clients is None else len(clients)

    def close(self) -> None:
        """Shut NVML down."""
        ask(self._nvml, "nvmlShutdown")

    def _foreign(self, pids: set[int]) -> tuple[int, ...] | None:
        # In a PID namespace most drivers report the host's pids, some ours (NVIDIA/nvidia-docker #1483,
        # HAMi-core #112): the numbers are only meaningful if our own pid is in the list.
        if not self._translated and os.getpid() not in pids:
            return None if pids else ()
        return tuple(sorted(pid for pid in pids if not self._ours(pid)))

    def _ours(self, pid: int) -> bool:
        if pid not in self._is_ours:  # looked up once per process, so a steady run reads no more files
            parent = _parent(pid, self._root)
            self._is_ours[pid] = parent is not None and parent > 1 and self._ours(parent)
        return self._is_ours[pid]


def visible_device(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the index or UUID of CUDA's first device; None if all are hidden.

    NVML counts in PCI order, CUDA by speed unless CUDA_DEVICE_ORDER=PCI_BUS_ID: in a machine with unlike GPUs
    only a UUID is unambiguous.
    """
    listed = environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return "0"
    first = listed.split(",")[0].strip()
    return None if first in ("", "-1", "NoDevFiles") else first


def _gpu_facts(nvml: Any, handle: Any) -> dict[str, Any]:
    def get(function: str, *arguments: object, then: Callable[[Any], Any] = lambda value: value) -> Any:
        answer = ask(nvml, function, handle, *arguments)
        return None if answer is None else then(answer)

    return {
        "name": get("nvmlDeviceGetName"),
        "uuid": get("nvmlDeviceGetUUID"),
        "driver_version": ask(nvml, "nvmlSystemGetDriverVersion"),
        "cuda_driver_version": _cuda_version(ask(nvml, "nvmlSystemGetCudaDriverVersion")),
        "memory_total_mb": get("nvmlDeviceGetMemoryInfo", then=lambda memory: memory.total / MB),
        "compute_capability": get("nvmlDeviceGetCudaComputeCapability", then=lambda pair: f"{pair[0]}.{pair[1]}"),
        "sm_clock_max_mhz": get("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM),
        "memory_clock_max_mhz": get("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_MEM),
        "power_limit_w": get("nvmlDeviceGetEnforcedPowerLimit", then=lambda milliwatts: milliwatts / 1e3),
        "persistence": get("nvmlDeviceGetPersistenceMode", then=bool),
        "compute_mode": get("nvmlDeviceGetComputeMode", then=COMPUTE_MODES.get),
        "mig": get("nvmlDeviceGetMigMode", then=lambda modes: bool(modes[0])),
        "virtualization": get("nvmlDeviceGetVirtualizationMode", then=VIRTUALIZATION_MODES.get),
        "ecc": get("nvmlDeviceGetEccMode", then=lambda modes: bool(modes[0])),
        "pci_bus_id": get("nvmlDeviceGetPciInfo", then=lambda pci: pci.busId),
        "pcie_generation": get("nvmlDeviceGetCurrPcieLinkGeneration"),
        "pcie_width": get("nvmlDeviceGetCurrPcieLinkWidth"),
    }


def _cuda_version(number: int | None) -> str | None:
    """Turn NVML's 12040 into 12.4."""
    return None if number is None else f"{number // 1000}.{number % 1000 // 10}"


def _parent(pid: int, root: Path) -> int | None:
    stat = read_text(root / f"proc/{pid}/stat")
    # The name in parentheses may contain blanks and parentheses; state and parent follow the last one.
    fields = (stat or "").rpartition(")")[2].split()
    return int(fields[1]) if len(fields) > 1 else None


def _traces(root: Path) -> dict[str, Any]:
    """Return signs of an NVIDIA GPU even if NVML does not work."""
    devices = (root / "sys/bus/pci/devices").glob("*")
    kinds = [(read_text(path / "vendor"), read_text(path / "class") or "") for path in devices]
    return {
        "nodes": sorted(f"/dev/{path.name}" for path in (root / "dev").glob("nvidia[0-9]*")),
        # Class 03 is a display or 3D controller; the card's audio and USB functions have the same vendor id.
        "pci_devices": sum(vendor == "0x10de" and kind.startswith("0x03") for vendor, kind in kinds),
        "kernel_module": read_text(root / "sys/module/nvidia/version"),
        "nvidia_smi": shutil.which("nvidia-smi"),
    }
