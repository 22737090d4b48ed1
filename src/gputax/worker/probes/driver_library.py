"""Which `libcuda.so.1` this process actually uses, and the calls through it: read back, never assumed."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SONAME = "libcuda.so.1"
NVML_SONAME = "libnvidia-ml.so.1"
DESCRIBE = "gputax_vgpu_describe"
SOFT_REPORT = "gputax_soft_report"
RUNTIME_REPORT = "gputax_runtime_report"
DESCRIBE_BYTES = 1 << 16
DEVICE_NODES = "/dev/nvidia"
NAME_BYTES = 256
LAUNCH = "cuLaunchKernel"  # every other kind of launch travels to the proxy as this one


def driver_facts() -> dict[str, Any]:
    """Return the evidence of how this process reaches its device, without loading anything new."""
    handle = _loaded()
    return {
        "pid": os.getpid(),
        "library": None if handle is None else library_of(handle),
        "vgpu": None if handle is None else _vgpu(handle),
        "software": None if handle is None else _reported(handle, SOFT_REPORT),
        "cuda_runtime": None if handle is None else _reported(handle, RUNTIME_REPORT),
        "device_nodes": open_device_nodes(),
    }


def launch_count() -> int:
    """Return how many kernels this process has launched so far, by the count of our own library; 0 for any other."""
    facts = driver_facts()
    if facts["vgpu"]:
        return int((facts["vgpu"].get("calls") or {}).get(LAUNCH, 0))
    return sum(int(value) for name, value in (facts["software"] or {}).items() if name.startswith("launches_"))


def loaded_library() -> str | None:
    """Return the file behind the `libcuda.so.1` of this process, None if there is none."""
    handle = _loaded()
    return None if handle is None else library_of(handle)


def library_of(handle: ctypes.CDLL) -> str | None:
    """Return the file that contains the library's `cuInit`, from the kernel's mappings."""
    address = ctypes.cast(handle.cuInit, ctypes.c_void_p).value or 0
    with Path("/proc/self/maps").open() as maps:
        return mapped_file(maps, address)


def mapped_file(maps: Iterable[str], address: int) -> str | None:
    """Return the file that is mapped at the address, by the lines of /proc/PID/maps."""
    for line in maps:
        span, *rest = line.rstrip("\n").split(maxsplit=5)
        low, _, high = span.partition("-")
        if int(low, 16) <= address < int(high, 16):
            return rest[4].removesuffix(" (deleted)") if len(rest) == 5 else None
    return None


@dataclass(frozen=True)
class DeviceFacts:
    """What the driver reports about itself and its device."""

    name: str
    memory_mb: float
    driver_version: str


def device_facts(handle: ctypes.CDLL) -> DeviceFacts:
    """Ask an initialised driver for its first device, without a context."""
    name, memory, version = ctypes.create_string_buffer(NAME_BYTES), ctypes.c_size_t(0), ctypes.c_int(0)
    handle.cuDeviceGetName(name, NAME_BYTES, 0)
    handle.cuDeviceTotalMem_v2(ctypes.byref(memory), 0)
    handle.cuDriverGetVersion(ctypes.byref(version))
    return DeviceFacts(name.value.decode(errors="replace"), memory.value / (1 << 20), version_text(version.value))


def version_text(version: int) -> str:
    """Return the driver's version number as people write it."""
    return f"{version // 1000}.{version % 1000 // 10}"


def open_device_nodes() -> list[str]:
    """Return the NVIDIA device nodes that this process has open or mapped."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.add(str(entry.readlink()))
        except OSError:
            continue  # the descriptor of this listing
    with Path("/proc/self/maps").open() as maps:
        found |= {line.split(maxsplit=5)[5].strip() for line in maps if DEVICE_NODES in line}
    return sorted(path for path in found if path.startswith(DEVICE_NODES))


def _loaded() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(SONAME, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None


def _vgpu(handle: ctypes.CDLL) -> dict[str, Any] | None:
    """Return libvgpu's report on its connection, None for any other library."""
    if not hasattr(handle, DESCRIBE):
        return None
    # Posted calls are counted by the proxy when it has done them; after this both have counted all.
    handle.cuCtxSynchronize()
    return _reported(handle, DESCRIBE)


def _reported(handle: ctypes.CDLL, function: str) -> dict[str, Any] | None:
    """Return the JSON object that a function of our own libraries writes, None for any other library."""
    report = getattr(handle, function, None)
    if report is None:
        return None
    buffer = ctypes.create_string_buffer(DESCRIBE_BYTES)
    report(buffer, ctypes.c_size_t(DESCRIBE_BYTES))
    try:
        described = json.loads(buffer.value)
    except ValueError:
        return {}
    return described if isinstance(described, dict) else {}


def system_driver() -> dict[str, Any]:
    """Load the system's library, initialise it, return whether it has a device; the process must exit afterwards."""
    try:
        handle = ctypes.CDLL(SONAME)
    except OSError as error:
        return {"path": None, "usable": False, "why": str(error)}
    path = library_of(handle)
    code, count = int(handle.cuInit(0)), ctypes.c_int(0)
    if code == 0:
        code = int(handle.cuDeviceGetCount(ctypes.byref(count)))
    if code or count.value < 1:
        return {"path": path, "usable": False, "why": f"{path}: no device (CUDA error {code})"}
    return {"path": path, "usable": True, "why": ""}


if __name__ == "__main__":
    json.dump(system_driver(), sys.stdout)
