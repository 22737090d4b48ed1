"""A whole suite of CUDA programs; prints one line per case that must not depend on what serves it."""

from __future__ import annotations

import ctypes
import hashlib
import json
import sys
from collections.abc import Callable
from typing import Any

import gpu
import numpy as np
from cuda.bindings import driver as cu
from gpu import error, from_device, function, launch, module, ok, to_device

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 1
random = np.random.default_rng(SEED)
INT = ctypes.c_int


def digest(*arrays: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


def floats(count: int) -> np.ndarray[Any, Any]:
    return random.standard_normal(count, dtype=np.float32)


def free(*pointers: Any) -> None:
    for pointer in pointers:
        ok(cu.cuMemFree(pointer))


def vectors() -> Any:
    loaded = module("vector")
    found = []
    for count in (1, 255, 4096, 100_003):
        a, b = floats(count), floats(count)
        on_a, on_b, out = to_device(a), to_device(b), to_device(np.zeros_like(a))
        launch(function(loaded, "vector_add"), ((count + 255) // 256,), (256,), (on_a, on_b, out, (count, INT)))
        ok(cu.cuCtxSynchronize())
        result = from_device(out, a)
        assert (result == a + b).all()
        launch(function(loaded, "saxpy"), (7,), (64,), ((2.5, ctypes.c_float), on_a, out, (count, ctypes.c_size_t)))
        found += [digest(result), digest(from_device(out, a))]
        free(on_a, on_b, out)
    ok(cu.cuModuleUnload(loaded))
    return found


def matrices() -> Any:
    loaded = module("matmul")
    n = 50
    a, b = floats(n * n), floats(n * n)
    on_a, on_b, out = to_device(a), to_device(b), to_device(np.zeros_like(a))
    launch(function(loaded, "matmul"), (4, 4), (16, 16), (on_a, on_b, out, (n, INT)))
    single = from_device(out, a)
    assert np.allclose(single, (a.reshape(n, n) @ b.reshape(n, n)).ravel(), atol=1e-4)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    on_wide_a, on_wide_b, wide_out = to_device(wide_a), to_device(wide_b), to_device(np.zeros_like(wide_a))
    kernel = function(loaded, "matmul_dynamic")
    launch(kernel, (7, 7), (8, 8), (on_wide_a, on_wide_b, wide_out, (n, INT)), shared=2 * 64 * 8)
    found = digest(single, from_device(wide_out, wide_a))
    free(on_a, on_b, out, on_wide_a, on_wide_b, wide_out)
    return found


def sums_and_transposes() -> Any:
    count = 5000
    values = floats(count)
    on_values, sums = to_device(values), to_device(np.zeros(20, np.float32))
    launch(function(module("reduce"), "block_sum"), (20,), (256,), (on_values, sums, (count, INT)), shared=1024)
    width, height = 70, 45
    matrix = floats(width * height)
    on_matrix, turned = to_device(matrix), to_device(np.zeros_like(matrix))
    launch(
        function(module("transpose"), "transpose"), (3, 2), (32, 8), (on_matrix, turned, (width, INT), (height, INT))
    )
    result = from_device(turned, matrix)
    assert (result.reshape(width, height) == matrix.reshape(height, width).T).all()
    data = random.integers(0, 256, 30_000, dtype=np.uint8)
    on_data, bins = to_device(data), to_device(np.zeros(256, np.uint32))
    launch(function(module("histogram"), "histogram_shared"), (8,), (128,), (on_data, bins, (len(data), INT)))
    counted = from_device(bins, np.zeros(256, np.uint32))
    assert (counted == np.bincount(data, minlength=256)).all()
    found = digest(from_device(sums, np.zeros(20, np.float32)), result, counted)
    free(on_values, sums, on_matrix, turned, on_data, bins)
    return found


def copies_of_every_size() -> Any:
    found = []
    for count in (1, 3, 4096, 7167, 7168, 7169, 65536, 65537, 300_000, 5_000_001):
        data = random.integers(0, 256, count, dtype=np.uint8)
        there = to_device(data)
        other = ok(cu.cuMemAlloc(count))
        ok(cu.cuMemcpyDtoD(other, there, count))
        back = from_device(other, data)
        assert (back == data).all(), count
        if count > 10:  # the middle alone
            part = np.empty(count - 7, np.uint8)
            ok(cu.cuMemcpyDtoH(part.ctypes.data, int(there) + 3, len(part)))
            assert (part == data[3 : 3 + len(part)]).all()
        found.append(digest(back))
        free(there, other)
    return found


def fills() -> Any:
    there = ok(cu.cuMemAlloc(4000))
    ok(cu.cuMemsetD8(there, 0x5A, 4000))
    ok(cu.cuMemsetD32(int(there) + 400, 0xDEADBEEF, 100))
    found = from_device(there, np.zeros(4000, np.uint8))
    free(there)
    return digest(found)


def streams_and_events() -> Any:
    loaded = module("vector")
    kernel = function(loaded, "vector_add")
    first, second = ok(cu.cuStreamCreate(1)), ok(cu.cuStreamCreateWithPriority(1, -1))
    start, end = ok(cu.cuEventCreate(0)), ok(cu.cuEventCreate(0))
    a = np.arange(20_000, dtype=np.float32)
    pointers = [ok(cu.cuMemAlloc(a.nbytes)) for _ in range(2)]
    ok(cu.cuEventRecord(start, first))
    ok(cu.cuMemcpyHtoDAsync(pointers[0], a.ctypes.data, a.nbytes, first))
    ok(cu.cuMemsetD8Async(pointers[1], 0, a.nbytes, first))
    for _ in range(5):
        launch(kernel, (79,), (256,), (pointers[0], pointers[1], pointers[1], (len(a), INT)), stream=first)
    ok(cu.cuEventRecord(end, first))
    ok(cu.cuStreamWaitEvent(second, end, 0))
    back = np.empty_like(a)
    ok(cu.cuMemcpyDtoHAsync(back.ctypes.data, pointers[1], a.nbytes, second))
    ok(cu.cuStreamSynchronize(second))
    ok(cu.cuEventSynchronize(end))
    assert (back == 5 * a).all()
    elapsed = ok(cu.cuEventElapsedTime(start, end))
    found = [digest(back), elapsed >= 0, error(cu.cuStreamQuery(first)), error(cu.cuEventQuery(end))]
    found += [error(cu.cuStreamDestroy(first)), error(cu.cuStreamDestroy(second)), error(cu.cuStreamSynchronize(first))]
    found += [error(cu.cuEventDestroy(start)), error(cu.cuEventDestroy(end)), error(cu.cuEventDestroy(end))]
    free(*pointers)
    return found


def globals_and_layouts() -> Any:
    loaded = module("language")
    pointer, count = ok(cu.cuModuleGetGlobal(loaded, b"table"))
    before = from_device(pointer, np.zeros(count // 4, np.float32))
    ok(cu.cuMemcpyHtoD(pointer, (before * 2).ctypes.data, count))
    after = from_device(pointer, before)
    layout = []
    kernel = function(loaded, "convert")
    for index in range(64):
        answer = cu.cuFuncGetParamInfo(kernel, index)
        layout.append([error(answer), *[int(v) for v in answer[1:] if v is not None]])
        if int(answer[0]):
            break
    attributes = [int(ok(cu.cuFuncGetAttribute(cu.CUfunction_attribute(number), kernel))) for number in range(8)]
    return [digest(before, after), layout, attributes, error(cu.cuMemFree(pointer))]


MAPS_HOST = 19  # depends on the transport: memory is mapped through shared memory only


def facts() -> Any:
    device = ok(cu.cuDeviceGet(0))
    attributes = []
    for number in range(1, 149):
        if number == MAPS_HOST:
            continue
        try:
            attributes.append([number, *map(str, cu.cuDeviceGetAttribute(cu.CUdevice_attribute(number), device))])
        except ValueError:
            continue
    name = ok(cu.cuDeviceGetName(100, device)).split(b"\0")[0].decode()
    return [
        attributes,
        name,
        bytes(ok(cu.cuDeviceGetUuid(device)).bytes).hex(),
        ok(cu.cuDriverGetVersion()),
        ok(cu.cuDeviceGetCount()),
        ok(cu.cuDeviceComputeCapability(device)),
        ok(cu.cuCtxGetStreamPriorityRange()),
        error(cu.cuDeviceGet(1)),
        [ok(cu.cuGetErrorName(cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY)).decode()],
        [ok(cu.cuGetErrorString(cu.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS)).decode()],
    ]


def several_contexts() -> Any:
    first = ok(cu.cuCtxGetCurrent())
    second = ok(cu.cuCtxCreate(None, 0, 0))
    here = to_device(np.arange(10, dtype=np.int32))
    assert int(ok(cu.cuCtxGetCurrent())) == int(second)
    ok(cu.cuCtxPushCurrent(first))
    there = to_device(np.arange(10, 20, dtype=np.int32))
    popped = ok(cu.cuCtxPopCurrent())
    assert int(popped) == int(first)
    found = [digest(from_device(here, np.zeros(10, np.int32)))]
    ok(cu.cuCtxDestroy(second))
    found.append(error(cu.cuCtxSetCurrent(second)))
    ok(cu.cuCtxSetCurrent(first))
    found.append(digest(from_device(there, np.zeros(10, np.int32))))
    found.append(error(cu.cuMemFree(here)))
    free(there)
    return found


def mistakes() -> Any:
    array = np.zeros(16, np.uint8)
    there = to_device(array)
    found = [
        error(cu.cuMemAlloc(0)),
        error(cu.cuMemAlloc(1 << 60)),
        error(cu.cuMemFree(int(there) + 1)),
        error(cu.cuMemcpyDtoH(array.ctypes.data, int(there) + 1, 16)),
        error(cu.cuMemcpyHtoD(int(there), array.ctypes.data, 17)),
        error(cu.cuMemcpyDtoD(int(there), int(there) + 12, 5)),
        error(cu.cuMemsetD8(int(there), 1, 17)),
        error(cu.cuMemsetD32(int(there), 1, 5)),
        error(cu.cuModuleLoadData(b"this is no module\0")),
        error(cu.cuModuleGetFunction(module("vector"), b"no_such_kernel")),
        error(cu.cuInit(7)),
    ]
    free(there)
    found.append(error(cu.cuMemcpyDtoH(array.ctypes.data, there, 16)))
    found.append(error(cu.cuMemFree(there)))
    return found


CASES: list[Callable[[], Any]] = [
    vectors,
    matrices,
    sums_and_transposes,
    copies_of_every_size,
    fills,
    streams_and_events,
    globals_and_layouts,
    facts,
    several_contexts,
    mistakes,
]


def main() -> None:
    context = gpu.begin()
    only = sys.argv[2:]
    for case in CASES:
        if not only or case.__name__ in only:
            print(case.__name__, json.dumps(case()), flush=True)
    ok(cu.cuCtxDestroy(context))


main()
