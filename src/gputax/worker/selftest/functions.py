"""Questions about kernels: attributes, layout of parameters, occupancy."""

from __future__ import annotations

import ctypes
import re
from functools import partial
from typing import Any

from gputax.worker.selftest.stage import Questions, Stage

ATTRIBUTES = range(18)
PARAMETERS = range(12)
THREADS = (1, 32, 64, 128, 256, 512, 1024, 1025)
SHARED_BYTES = (0, 1024, 16 << 10, 48 << 10, 200 << 10)
LARGER_SHARED_BYTES = 64 << 10
MOST_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


def entries(ptx: bytes) -> list[str]:
    """Return the kernels of a PTX text."""
    return [name.decode() for name in re.findall(rb"\.entry\s+([A-Za-z_$][\w$]*)", ptx)]


def questions(stage: Stage) -> Questions:
    """Ask about every kernel of every image, as libraries do before they choose one."""
    driver = stage.driver
    for image, text in sorted(stage.images.items()):
        names = entries(text)
        if not names:
            continue
        module = stage.module(image)
        for name in names:
            kernel = stage.function(module, name)
            title = f"{image}.{name}"
            yield f"{title}: attributes", partial(_attributes, stage, kernel)
            yield f"{title}: parameters", partial(_parameters, stage, kernel)
            yield f"{title}: occupancy", partial(_occupancy, stage, kernel)
            yield f"{title}: shared memory left", partial(_shared_left, stage, kernel)
            yield f"{title}: best block", partial(_best_block, stage, kernel)
            set_more = ("cuFuncSetAttribute", kernel, MOST_DYNAMIC_SHARED, LARGER_SHARED_BYTES)
            yield f"{title}: more shared memory", partial(driver.code, *set_more)
            yield f"{title}: attributes with more", partial(_attributes, stage, kernel)
        yield (
            f"{image}: a kernel that it lacks",
            partial(driver.asked, "cuModuleGetFunction", module, b"no_such_kernel"),
        )
        yield f"{image}: unloaded", partial(driver.code, "cuModuleUnload", module)


def _attributes(stage: Stage, kernel: int) -> list[Any]:
    return [stage.driver.asked("cuFuncGetAttribute", number, kernel) for number in ATTRIBUTES]


def _parameters(stage: Stage, kernel: int) -> list[Any]:
    found = []
    for index in PARAMETERS:
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        code = stage.driver.code("cuFuncGetParamInfo", kernel, index, ctypes.byref(offset), ctypes.byref(size))
        found.append([code, offset.value, size.value])
        if code:
            break
    return found


def _occupancy(stage: Stage, kernel: int) -> list[Any]:
    name = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
    return [
        [threads, shared, *stage.driver.asked(name, kernel, threads, shared)]
        for threads in THREADS
        for shared in SHARED_BYTES
    ]


def _shared_left(stage: Stage, kernel: int) -> list[Any]:
    name = "cuOccupancyAvailableDynamicSMemPerBlock"
    return [stage.driver.asked(name, kernel, 1, threads, kind=ctypes.c_size_t) for threads in THREADS[:-1]]


def _best_block(stage: Stage, kernel: int) -> list[int]:
    grid, block = ctypes.c_int(), ctypes.c_int()
    out = (ctypes.byref(grid), ctypes.byref(block))
    return [stage.driver.code("cuOccupancyMaxPotentialBlockSize", *out, kernel, None, 0, 0), grid.value, block.value]
