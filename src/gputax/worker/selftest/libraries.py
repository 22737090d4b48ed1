"""Programs on a fat binary that nvcc built, by the calls with which the CUDA runtime loads it."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

import numpy as np

from gputax.worker.selftest.stage import Questions, Stage, digest, hold

PROGRAM = "program"
SCALE_FLOATS, SCALE_NUMBERS = "_Z5scaleIfEvPKT_PS0_iS0_", "_Z5scaleIiEvPKT_PS0_iS0_"
KERNELS = (SCALE_FLOATS, SCALE_NUMBERS, "weigh", "count_up", "block_sums", "reverse_in_dynamic_memory", "say")
ATTRIBUTES = range(10)
INT, FLOAT = ctypes.c_int, ctypes.c_float


class Library:
    """A loaded fat binary; its image stays where it is."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        image = stage.images[PROGRAM]
        self._image = ctypes.create_string_buffer(image, len(image))
        self.handle = stage.driver.made("cuLibraryLoadData", self._image, None, None, 0, None, None, 0)

    def kernel(self, name: str) -> int:
        """Return a kernel, which a launch takes in place of a function."""
        return self._stage.driver.made("cuLibraryGetKernel", self.handle, name.encode())

    def variable(self, name: str) -> tuple[int, int]:
        """Return the address and size of a variable."""
        pointer, size = ctypes.c_uint64(), ctypes.c_size_t()
        self._stage.driver("cuLibraryGetGlobal", ctypes.byref(pointer), ctypes.byref(size), self.handle, name.encode())
        return pointer.value, size.value


def questions(stage: Stage) -> Questions:
    """Load the fat binary, ask about its kernels, and run each."""
    driver, library = stage.driver, Library(stage)
    for name in KERNELS:
        yield f"{name}: attributes", partial(_attributes, stage, library, name)
    yield "a kernel that it lacks", partial(driver.asked, "cuLibraryGetKernel", library.handle, b"no_such_kernel")
    yield "templates", partial(_templates, stage, library)
    yield "a constant symbol", partial(_constant, stage, library)
    yield "atomics on symbols", partial(_atomics, stage, library)
    yield "shared memory", partial(_shared, stage, library)
    yield "printf", partial(_printed, stage, library)
    yield "occupancy", partial(_occupancy, stage, library)
    yield "unloaded", partial(driver.code, "cuLibraryUnload", library.handle)


def _attributes(stage: Stage, library: Library, name: str) -> list[Any]:
    kernel = library.kernel(name)
    return [stage.driver.asked("cuKernelGetAttribute", number, kernel, stage.device) for number in ATTRIBUTES]


def _templates(stage: Stage, library: Library) -> str:
    floats, numbers = np.arange(1000, dtype=np.float32), np.arange(1000, dtype=np.int32)
    one, other = stage.to_device(floats), stage.to_device(numbers)
    stage.run(library.kernel(SCALE_FLOATS), (8,), (128,), one, one, INT(1000), FLOAT(1.5))
    stage.run(library.kernel(SCALE_NUMBERS), (8,), (128,), other, other, INT(1000), INT(-3))
    found = stage.from_device(one, floats), stage.from_device(other, numbers)
    hold(bool((found[0] == floats * 1.5).all() and (found[1] == numbers * -3).all()), "a product is wrong")
    stage.free(one, other)
    return digest(*found)


def _constant(stage: Stage, library: Library) -> list[Any]:
    weights, threes = np.array([1, 0.5, -2, 8], np.float32), np.full(64, 3, np.float32)
    pointer, size = library.variable("factors")
    stage.driver("cuMemcpyHtoD_v2", pointer, weights.ctypes.data, weights.nbytes)
    there = stage.to_device(threes)
    stage.run(library.kernel("weigh"), (1,), (64,), there, there, INT(64))
    found = stage.from_device(there, threes)
    hold(bool((found == np.tile(weights, 16) * 3).all()), "the kernel saw other weights")
    stage.free(there)
    return [digest(found), size]


def _atomics(stage: Stage, library: Library) -> list[Any]:
    (counter, _), (table, size) = library.variable("counter"), library.variable("table")
    start = np.array([5], np.int32)
    stage.driver("cuMemcpyHtoD_v2", counter, start.ctypes.data, start.nbytes)
    stage.run(library.kernel("count_up"), (10,), (300,), INT(2))
    count, tops = stage.from_device(counter, start).item(), stage.from_device(table, np.zeros(size // 4, np.uint32))
    hold(count == 5 + 10 * 300 * 2 and bool((tops == 10).all()), f"the counter says {count}")
    return [count, digest(tops), size]


def _shared(stage: Stage, library: Library) -> str:
    values, sums = np.arange(1000, dtype=np.int32), np.zeros(8, np.int32)
    there, parts = stage.to_device(values), stage.to_device(sums)
    stage.run(library.kernel("block_sums"), (8,), (128,), there, parts, INT(1000))
    found = stage.from_device(parts, sums)
    hold(int(found.sum()) == 499500, "the sums are wrong")
    stage.run(library.kernel("reverse_in_dynamic_memory"), (1,), (256,), there, shared=1024)
    turned = stage.from_device(there, values)
    hold(bool((turned[:256] == np.arange(255, -1, -1)).all()), "the order is wrong")
    stage.free(there, parts)
    return digest(found, turned)


def _printed(stage: Stage, library: Library) -> int:
    said = stage.to_device(np.zeros(1, np.int32))
    stage.run(library.kernel("say"), (3,), (1,), INT(42), said)
    stage.wait()
    count = int(stage.from_device(said, np.zeros(1, np.int32)).item())
    hold(count == 3, f"{count} of 3 blocks have printed")
    stage.free(said)
    return count


def _occupancy(stage: Stage, library: Library) -> list[Any]:
    function = stage.driver.made("cuKernelGetFunction", library.kernel("block_sums"))
    name = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
    return [stage.driver.asked(name, function, threads, 0) for threads in (32, 128, 1024)]
