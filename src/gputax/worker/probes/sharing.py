"""How a tenant's GPU is shared, seen from inside: MPS by variables and socket, MIG slices, the driver's sizes."""

from __future__ import annotations

import ctypes
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MB = 1 << 20
SONAME = "libcuda.so.1"
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
