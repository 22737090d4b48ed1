"""Mistakes of a program: the driver must refuse each with the same code on both sides."""

from __future__ import annotations

import ctypes
from functools import partial

import numpy as np

from gputax.worker.selftest.stage import Questions, Stage

INT = ctypes.c_int


def questions(stage: Stage) -> Questions:
    """Wrong arguments, after which a context is as good as before."""
    driver = stage.driver
    array = np.zeros(16, np.uint8)
    there, host = stage.to_device(array), array.ctypes.data
    nowhere = ctypes.c_uint64()
    yield "no bytes allocated", partial(driver.code, "cuMemAlloc_v2", ctypes.byref(nowhere), 0)
    yield "too many bytes allocated", partial(driver.code, "cuMemAlloc_v2", ctypes.byref(nowhere), 1 << 50)
    yield "no place for the answer", partial(driver.code, "cuMemAlloc_v2", None, 64)
    yield "freed in the middle", partial(stage.seen, "cuMemFree_v2", there + 1)
    yield "freed what is nothing", partial(stage.seen, "cuMemFree_v2", 0x123)
    yield "freed null", partial(stage.seen, "cuMemFree_v2", 0)
    yield "no bytes copied", partial(stage.seen, "cuMemcpyHtoD_v2", there, host, 0)
    yield "copied out from null", partial(stage.seen, "cuMemcpyDtoH_v2", host, 0, 16)
    yield "copied in to null", partial(stage.seen, "cuMemcpyHtoD_v2", 0, host, 16)
    yield "an image that is none", partial(driver.code, "cuModuleLoadData", ctypes.byref(nowhere), b"not an image\0")
    broken = b".version 7.0\n.target sm_50\n.address_size 64\n.entry broken() { no.such.instruction; }\n\0"
    yield "an image with an error", partial(driver.code, "cuModuleLoadData", ctypes.byref(nowhere), broken)
    yield "initialised with flags", partial(driver.code, "cuInit", 7)
    add = stage.kernel("vector", "vector_add")
    words = (there, there, there, INT(0))
    for title, grid, block, shared in (
        ("no blocks", (0,), (32,), 0),
        ("no threads", (1,), (0,), 0),
        ("too many threads", (1,), (4096,), 0),
        ("too deep a block", (1,), (1, 1, 65), 0),
        ("too many blocks", (1, 70000), (1,), 0),
        ("too much shared memory", (1,), (32,), 10 << 20),
    ):
        yield f"launched with {title}", partial(_launched, stage, add, grid, block, shared, words)
    yield "no current context", partial(_without_context, stage)
    yield "the context still works", lambda: [driver.code("cuCtxSynchronize"), stage.from_device(there, array).tolist()]
    stage.free(there)
    yield "freed twice", partial(stage.seen, "cuMemFree_v2", there)


def _launched(
    stage: Stage, kernel: int, grid: tuple[int, ...], block: tuple[int, ...], shared: int, words: tuple[object, ...]
) -> int:
    code = stage.launch(kernel, grid, block, *words, shared=shared)
    return code or stage.driver.code("cuCtxSynchronize")


def _without_context(stage: Stage) -> list[int]:
    pointer = ctypes.c_uint64()
    stage.driver("cuCtxSetCurrent", 0)
    codes = [stage.driver.code("cuMemAlloc_v2", ctypes.byref(pointer), 64), stage.driver.code("cuCtxSynchronize")]
    stage.driver("cuCtxSetCurrent", stage.context)
    return codes


def faults(stage: Stage) -> Questions:
    """A kernel that reads where nothing is: its context is lost, and every later call says so."""
    add = stage.kernel("vector", "vector_add")
    there = stage.room(4096)
    nowhere = 0x7F0000000000
    yield (
        "a kernel beyond its memory",
        partial(_launched, stage, add, (1,), (32,), 0, (nowhere, nowhere, there, INT(32))),
    )
    pointer = ctypes.c_uint64()
    yield "allocating after it", partial(stage.driver.code, "cuMemAlloc_v2", ctypes.byref(pointer), 64)
    yield "waiting after it", partial(stage.driver.code, "cuCtxSynchronize")
    yield "freeing after it", partial(stage.seen, "cuMemFree_v2", there)
