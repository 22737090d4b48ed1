"""Questions about the device and its context: attributes, limits, names, versions."""

from __future__ import annotations

import ctypes
import re
from functools import partial
from typing import Any

from gputax.worker.selftest.stage import NAME_BYTES, Questions, Stage

ATTRIBUTES = range(1, 160)  # CUDA 13.4 ends at 149; the numbers behind it must be refused alike
LIMITS = range(10)
LARGEST_ERROR = 1000
CALL = re.compile(r"cu[A-Z]\w+")
VERSIONS = (11000, 12000, 13000)


def questions(stage: Stage) -> Questions:
    """Ask the driver for everything that it says without work."""
    driver, device = stage.driver, stage.device
    for number in ATTRIBUTES:
        yield f"attribute {number}", partial(driver.asked, "cuDeviceGetAttribute", number, device)
    yield "name", stage.name
    for version in ("", "_v2"):
        yield f"uuid{version}", partial(_bytes, stage, f"cuDeviceGetUuid{version}", 16)
    yield "driver version", partial(driver.asked, "cuDriverGetVersion")
    yield "number of devices", partial(driver.asked, "cuDeviceGetCount")
    yield "total memory", partial(driver.asked, "cuDeviceTotalMem_v2", device, kind=ctypes.c_size_t)
    yield "compute capability", partial(_pair, stage, "cuDeviceComputeCapability", device)
    yield "stream priorities", partial(_pair, stage, "cuCtxGetStreamPriorityRange")
    yield "a device that does not exist", partial(driver.asked, "cuDeviceGet", 4096)
    yield "an attribute of a device that does not exist", partial(driver.asked, "cuDeviceGetAttribute", 75, 4096)
    yield "peer access to itself", partial(driver.asked, "cuDeviceCanAccessPeer", device, device)
    for limit in LIMITS:
        yield f"limit {limit}", partial(driver.asked, "cuCtxGetLimit", limit, kind=ctypes.c_size_t)
    yield "flags of the context", partial(driver.asked, "cuCtxGetFlags", kind=ctypes.c_uint)
    yield "names of errors", partial(_texts, stage, "cuGetErrorName")
    yield "texts of errors", partial(_texts, stage, "cuGetErrorString")
    yield "primary context", partial(_pair, stage, "cuDevicePrimaryCtxGetState", first=(device,))


def names(stage: Stage) -> Questions:
    """Look up every call that cuda-bindings knows, as programs do, for drivers of several versions."""
    from cuda.bindings import driver as bindings

    for name in sorted(filter(CALL.fullmatch, dir(bindings))):
        yield name, partial(_found, stage, name)


def _found(stage: Stage, name: str) -> list[list[int]]:
    answers = []
    for version in VERSIONS:
        pointer, status = ctypes.c_void_p(), ctypes.c_int()
        where, how = ctypes.byref(pointer), ctypes.byref(status)
        code = stage.driver.code("cuGetProcAddress_v2", name.encode(), where, version, 0, how)
        answers.append([code, int(bool(pointer.value)), status.value])
    return answers


def _bytes(stage: Stage, name: str, count: int) -> list[Any]:
    found = ctypes.create_string_buffer(count)
    return [stage.driver.code(name, found, stage.device), found.raw.hex()]


def _pair(stage: Stage, name: str, *behind: int, first: tuple[int, ...] = ()) -> list[int]:
    one, two = ctypes.c_int(), ctypes.c_int()
    return [stage.driver.code(name, *first, ctypes.byref(one), ctypes.byref(two), *behind), one.value, two.value]


def _texts(stage: Stage, name: str) -> dict[str, str]:
    """Return the texts of the codes that the driver knows."""
    found = {}
    for code in range(LARGEST_ERROR):
        text = ctypes.c_char_p()
        if stage.driver.code(name, code, ctypes.byref(text)) == 0 and text.value:
            found[str(code)] = text.value[:NAME_BYTES].decode(errors="replace")
    return found
