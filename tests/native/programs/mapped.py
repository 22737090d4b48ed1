"""Host memory that kernels reach, as every libcuda must have it; one line per case."""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from typing import Any

import gpu
import numpy as np
from cuda.bindings import driver as cu
from gpu import error, from_device, function, launch, module, ok, to_device

MAPPED, COUNT, INT = 2, 3000, ctypes.c_int
BAD_VALUE = "CUDA_ERROR_INVALID_VALUE"


def allocate(count: int = COUNT) -> tuple[Any, np.ndarray[Any, Any], Any]:
    """Memory of so many floats: its address here, as an array, and its address for kernels."""
    pointer = int(ok(cu.cuMemHostAlloc(4 * count, MAPPED)))
    array = np.frombuffer(memoryview((ctypes.c_char * (4 * count)).from_address(pointer)), np.float32)
    return pointer, array, ok(cu.cuMemHostGetDevicePointer(pointer, 0))


def kernels_read_and_write_it_without_a_copy() -> Any:
    add = function(module("vector"), "vector_add")
    (_, a, a_there), (_, out, out_there) = allocate(), allocate()
    b_there = to_device(np.full(COUNT, 5, np.float32))
    found = []
    for value in (1, 2):
        a[:] = value + np.arange(COUNT)
        launch(add, (12,), (256,), (a_there, b_there, out_there, (COUNT, INT)))
        ok(cu.cuCtxSynchronize())
        assert (out == a + 5).all()
        found.append(float(out[COUNT - 1]))
    return found


def copies_and_fills_reach_it_too() -> Any:
    pointer, here, there = allocate()
    other = to_device(np.arange(COUNT, dtype=np.float32))
    ok(cu.cuMemcpyDtoD(there, other, 4 * COUNT))
    ok(cu.cuCtxSynchronize())
    assert (here == np.arange(COUNT)).all()
    ok(cu.cuMemsetD32(int(there) + 40, 0x40400000, 10))
    ok(cu.cuCtxSynchronize())
    assert (here[10:20] == 3).all()
    here[:] = 8
    ok(cu.cuMemcpyHtoD(other, pointer, 4 * COUNT))
    assert (from_device(other, here) == 8).all()
    ok(cu.cuMemcpy(there, other, 400))
    ok(cu.cuMemcpyDtoH(pointer + 400, other, 400))
    refused = [
        error(cu.cuMemsetD32(int(there) + 4, 0, COUNT + 1024)),
        error(cu.cuMemcpyDtoD(there, other, 4 * COUNT + 4096)),
        error(cu.cuMemFree(there)),
    ]
    assert refused == [BAD_VALUE] * 3, refused
    return refused


def it_is_known_by_both_addresses_until_it_is_freed() -> Any:
    pointer, _, there = allocate()
    names = cu.CUpointer_attribute
    kinds = [
        int(ok(cu.cuPointerGetAttribute(names.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at)))
        for at in (pointer, there, to_device(np.zeros(1, np.float32)))
    ]
    assert int(ok(cu.cuPointerGetAttribute(names.CU_POINTER_ATTRIBUTE_HOST_POINTER, int(there) + 8))) == pointer + 8
    assert int(ok(cu.cuPointerGetAttribute(names.CU_POINTER_ATTRIBUTE_DEVICE_POINTER, pointer + 8))) == int(there) + 8
    assert int(ok(cu.cuMemHostGetDevicePointer(pointer + 100, 0))) == int(there) + 100
    ordinary = int(ok(cu.cuMemHostAlloc(64, 0)))
    found = [kinds, error(cu.cuMemHostGetDevicePointer(ordinary, 0)), error(cu.cuMemHostGetDevicePointer(pointer, 1))]
    ok(cu.cuMemFreeHost(ordinary))
    ok(cu.cuMemFreeHost(pointer))
    found += [error(cu.cuMemHostGetDevicePointer(pointer, 0)), error(cu.cuMemsetD32(there, 0, 1))]
    assert found == [[1, 1, 2], BAD_VALUE, BAD_VALUE, BAD_VALUE, BAD_VALUE], found
    return found


def it_ends_with_its_context_and_no_kernel_reaches_it_then() -> Any:
    second = ok(cu.cuCtxCreate(None, 0, 0))
    _, _, there = allocate()
    ok(cu.cuCtxDestroy(second))
    third = ok(cu.cuCtxCreate(None, 0, 0))
    add = function(module("vector"), "vector_add")
    launch(add, (1,), (32,), (there, there, there, (32, INT)))
    found = error(cu.cuCtxSynchronize())
    ok(cu.cuCtxDestroy(third))
    assert found == "CUDA_ERROR_ILLEGAL_ADDRESS", found
    return found


CASES: list[Callable[[], Any]] = [
    kernels_read_and_write_it_without_a_copy,
    copies_and_fills_reach_it_too,
    it_is_known_by_both_addresses_until_it_is_freed,
    it_ends_with_its_context_and_no_kernel_reaches_it_then,
]


def main() -> None:
    context = gpu.begin()
    can = cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY
    assert ok(cu.cuDeviceGetAttribute(can, 0)) == 1
    only = sys.argv[1:]
    for case in CASES:
        if not only or case.__name__ in only:
            ok(cu.cuCtxSetCurrent(context))
            print(case.__name__, json.dumps(case()), flush=True)
    ok(cu.cuCtxSetCurrent(context))
    ok(cu.cuCtxDestroy(context))


main()
