"""What a process can see of the mode its GPU is in: the driver with a context, who else is on it, sandbox, limiters."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gputax.worker.probes.driver_library import SONAME, driver_facts
from gputax.worker.probes.files import read_text
from gputax.worker.probes.host import sandbox
from gputax.worker.probes.nvidia import NvmlAbsence, NvmlSampler, device_facts

PROXY_SOCKET = "GPUTAX_PROXY_SOCKET"
# HAMi and its relatives limit in the process itself, by a library that these variables configure.
LIMITER_MEMORY, LIMITER_SM = re.compile(r"CUDA_DEVICE_MEMORY_LIMIT(_\d+)?"), "CUDA_DEVICE_SM_LIMIT"
LIMITER_LIBRARY = "libvgpu.so"


def mode_facts(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Open a context on the device and return all that says how it is shared; the process should exit afterwards.

    With a context this process is itself among those on the GPU, and the driver reports the free memory under a cap.
    """
    why = opened()
    return {
        "mode": {
            "opened": not why,
            "why": why,
            "company": company(root),
            "sandbox": sandbox(root),
            "limiter": limiter(root, environ),
            "proxy_socket": environ.get(PROXY_SOCKET) or None,
        },
        "devices": device_facts(root),
        # Last: it counts the calls to a proxy, and afterwards there are none.
        "driver": driver_facts(),
    }


def opened() -> str:
    """Load the driver's library and make the first device's context current; return why that failed, or ""."""
    try:
        library = ctypes.CDLL(SONAME)
        code, device, context = int(library.cuInit(0)), ctypes.c_int(), ctypes.c_void_p()
        if code:
            return f"cuInit: CUDA error {code}"
        if code := int(library.cuDeviceGet(ctypes.byref(device), 0)):
            return f"cuDeviceGet: CUDA error {code}"
        if code := int(library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)):
            return f"cuDevicePrimaryCtxRetain: CUDA error {code}"
        code = int(library.cuCtxSetCurrent(context))
    except (OSError, AttributeError) as error:  # no such library, or one that is not a driver
        return str(error)
    return f"cuCtxSetCurrent: CUDA error {code}" if code else ""


def company(root: Path = Path("/")) -> dict[str, Any]:
    """Return the processes on the first visible GPU, by NVML; names only where their ids are ours too."""
    sampler = NvmlSampler.open(root=root)
    if isinstance(sampler, NvmlAbsence):
        return {"known": False, "why": sampler.why}
    try:
        now = sampler.sample()
        foreign = None if now.foreign_pids is None else [_process(pid, root) for pid in now.foreign_pids]
        return {
            "known": now.processes is not None,
            "why": None if now.processes is not None else "NVML does not list processes here",
            "processes": now.processes,
            "foreign": foreign,
            "mps_clients": sampler.mps_clients(),
        }
    finally:
        sampler.close()


def _process(pid: int, root: Path) -> dict[str, Any]:
    return {"pid": pid, "name": read_text(root / f"proc/{pid}/comm")}


def limiter(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> dict[str, Any] | None:
    """Return the limits of an in-process limiter such as HAMi-core, and whether its library is loaded here."""
    memory = next((value for name, value in sorted(environ.items()) if LIMITER_MEMORY.fullmatch(name)), None)
    sm_percent = environ.get(LIMITER_SM)
    if memory is None and sm_percent is None:
        return None
    loaded = f"/{LIMITER_LIBRARY}" in (read_text(root / "proc/self/maps") or "")
    return {"memory": memory, "sm_percent": sm_percent, "loaded": loaded}
