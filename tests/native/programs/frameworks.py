"""The calls that frameworks make beside launches and copies, as every libcuda must answer them; one line per case."""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from typing import Any

import gpu
import numpy as np
from cuda.bindings import driver as cu
from gpu import error, from_device, function, image, launch, module, name_of, ok, to_device

BAD_VALUE, BAD_HANDLE = "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_INVALID_HANDLE"
UNSUPPORTED, NOT_FOUND = "CUDA_ERROR_NOT_SUPPORTED", "CUDA_ERROR_NOT_FOUND"
library = ctypes.CDLL("libcuda.so.1")
PORTABLE = 1


def load_library(text: bytes) -> Any:
    return cu.cuLibraryLoadData(text, [], [], 0, [], [], 0)


def copies_find_out_where_addresses_lie() -> Any:
    source, back = np.arange(1000, dtype=np.uint32), np.zeros(1000, np.uint32)
    there, other = to_device(np.zeros(1000, np.uint32)), to_device(np.zeros(1000, np.uint32))
    stream = ok(cu.cuStreamCreate(0))
    ok(cu.cuMemcpyAsync(there, source.ctypes.data, source.nbytes, stream))
    ok(cu.cuMemcpyAsync(other, there, source.nbytes, stream))
    ok(cu.cuMemcpyAsync(back.ctypes.data, other, source.nbytes, stream))
    ok(cu.cuStreamSynchronize(stream))
    assert (back == source).all()
    ok(cu.cuMemcpy(int(there) + 400, source.ctypes.data, 40))
    ok(cu.cuMemcpy(back.ctypes.data, int(there) + 400, 40))
    assert (back[:10] == source[:10]).all()
    found = [
        error(cu.cuMemcpy(back.ctypes.data, source.ctypes.data, 40)),  # no device memory at all
        error(cu.cuMemcpy(int(there) + 3990, source.ctypes.data, 40)),
    ]
    assert found == [BAD_VALUE, BAD_VALUE], found
    return found


def fills_of_sixteen_bits() -> Any:
    there = to_device(np.zeros(100, np.uint16))
    ok(cu.cuMemsetD16(there, 0x1234, 50))
    ok(cu.cuMemsetD16Async(int(there) + 100, 0xFFFE, 50, 0))
    found = from_device(there, np.zeros(100, np.uint16))
    assert found.tolist() == [0x1234] * 50 + [0xFFFE] * 50
    return [error(cu.cuMemsetD16(there, 0, 101)), error(cu.cuMemsetD16(int(there), 0, 1 << 63))]


def registered_host_memory_is_copied() -> Any:
    memory = np.arange(4096, dtype=np.uint32)
    address = memory.ctypes.data
    ok(cu.cuMemHostRegister(address, memory.nbytes, PORTABLE))
    there = ok(cu.cuMemAlloc(memory.nbytes))
    ok(cu.cuMemcpyHtoDAsync(there, address, memory.nbytes, 0))
    assert (from_device(there, memory) == memory).all()
    found = [
        error(cu.cuMemHostRegister(address + 64, 64, 0)),
        error(cu.cuMemHostGetDevicePointer(address, 0)),
        error(cu.cuMemHostRegister(address + (1 << 20), 64, 1 << 20)),
        error(cu.cuMemHostUnregister(address + 64)),
    ]
    ok(cu.cuMemHostUnregister(address))
    found.append(error(cu.cuMemHostUnregister(address)))
    missing = "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"
    assert found == [
        "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
        BAD_VALUE,
        BAD_VALUE,
        missing,
        missing,
    ], found
    return found


def a_library_is_a_module_in_every_context_that_uses_it() -> Any:
    loaded = ok(load_library(image("vector")))
    kernel = ok(cu.cuLibraryGetKernel(loaded, b"vector_add"))
    assert int(ok(cu.cuLibraryGetKernel(loaded, b"vector_add"))) == int(kernel)
    found: list[Any] = []
    first = ok(cu.cuCtxGetCurrent())
    second = ok(cu.cuCtxCreate(None, 0, 0))
    functions = []
    for context in (first, second, first):
        ok(cu.cuCtxSetCurrent(context))
        a, out = to_device(np.arange(64, dtype=np.float32)), to_device(np.zeros(64, np.float32))
        functions.append(int(ok(cu.cuKernelGetFunction(kernel))))
        for handle in (cu.CUfunction(int(kernel)), cu.CUfunction(functions[-1])):  # a kernel may stand for its function
            ok(cu.cuMemsetD8(out, 0, 256))
            launch(handle, (1,), (64,), (a, a, out, (64, ctypes.c_int)))
            assert (from_device(out, np.zeros(64, np.float32)) == 2 * np.arange(64)).all()
        found.append(int(ok(cu.cuKernelGetAttribute(cu.CUfunction_attribute(0), kernel, 0))))
    assert functions[0] == functions[2] != functions[1]
    layout = [ok(cu.cuKernelGetParamInfo(kernel, index)) for index in range(4)]
    found += [[int(v) for v in pair] for pair in layout] + [error(cu.cuKernelGetParamInfo(kernel, 4))]
    assert int(ok(cu.cuKernelGetLibrary(kernel))) == int(loaded)
    assert ok(cu.cuKernelGetName(kernel)) == b"vector_add"
    ok(cu.cuCtxDestroy(second))
    ok(cu.cuCtxSetCurrent(first))
    found.append(error(cu.cuLibraryGetKernel(loaded, b"no_such_kernel")))
    ok(cu.cuLibraryUnload(loaded))
    found += [error(cu.cuKernelGetFunction(kernel)), error(cu.cuLibraryUnload(loaded))]
    found.append(error(cu.cuLaunchKernel(cu.CUfunction(int(kernel)), 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)))
    assert found[-5:] == [BAD_VALUE, NOT_FOUND, BAD_HANDLE, BAD_HANDLE, BAD_HANDLE], found
    return found


def a_library_may_be_loaded_before_there_is_a_context() -> Any:
    kept = ok(cu.cuCtxGetCurrent())
    while int(ok(cu.cuCtxGetCurrent())):
        ok(cu.cuCtxPopCurrent())
    loaded = ok(load_library(image("language")))
    found = [error(cu.cuLibraryGetModule(loaded))]
    ok(cu.cuCtxSetCurrent(kept))
    pointer, count = ok(cu.cuLibraryGetGlobal(loaded, b"table"))
    values = from_device(pointer, np.zeros(count // 4, np.float32))
    assert values.any()
    ok(cu.cuLibraryUnload(loaded))
    found.append(error(load_library(b".version 8.0\n.target sm_75\nnonsense\0")))
    assert found[0] == "CUDA_ERROR_INVALID_CONTEXT", found
    return [*found, values.tolist()[:3]]


def memory_in_the_order_of_a_stream_and_pools() -> Any:
    stream, free = ok(cu.cuStreamCreate(1)), ok(cu.cuMemGetInfo())[0]
    pool = ok(cu.cuDeviceGetDefaultMemPool(0))
    assert int(ok(cu.cuDeviceGetMemPool(0))) == int(pool)
    there = ok(cu.cuMemAllocAsync(1 << 20, stream))
    ok(cu.cuMemsetD32Async(there, 7, 1 << 18, stream))
    assert (from_device(there, np.zeros(1 << 18, np.uint32)) == 7).all()
    ok(cu.cuMemFreeAsync(there, stream))
    assert ok(cu.cuMemGetInfo())[0] == free
    threshold = cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    ok(cu.cuMemPoolSetAttribute(pool, threshold, cu.cuuint64_t(1 << 40)))
    found: list[Any] = [int(ok(cu.cuMemPoolGetAttribute(pool, threshold)))]
    properties = cu.CUmemPoolProps()
    properties.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    own = ok(cu.cuMemPoolCreate(properties))
    from_pool = ok(cu.cuMemAllocFromPoolAsync(4096, own, stream))
    ok(cu.cuMemPoolTrimTo(own, 0))
    ok(cu.cuMemPoolDestroy(own))
    ok(cu.cuMemFreeAsync(from_pool, stream))
    found += [
        error(cu.cuMemAllocFromPoolAsync(4096, own, stream)),
        error(cu.cuMemPoolDestroy(own)),
        error(cu.cuMemPoolDestroy(pool)),
        error(cu.cuMemFreeAsync(from_pool, stream)),
        error(cu.cuMemAllocAsync(1 << 60, stream)),
    ]
    assert found[1:] == [BAD_VALUE] * 4 + ["CUDA_ERROR_OUT_OF_MEMORY"], found
    return found


def a_pool_counts_what_is_used_and_keeps_its_limit() -> Any:
    stream, names = ok(cu.cuStreamCreate(1)), cu.CUmemPool_attribute
    properties = cu.CUmemPoolProps()
    properties.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.maxSize = 3 << 20
    pool = ok(cu.cuMemPoolCreate(properties))
    default = ok(cu.cuDeviceGetMemPool(0))
    ok(cu.cuDeviceSetMemPool(0, pool))  # what cuMemAllocAsync takes from here on
    found: list[Any] = []

    def counts() -> list[int]:
        asked = [names(number) for number in (5, 6, 7, 8)]  # reserved, its most, used, its most
        return [int(ok(cu.cuMemPoolGetAttribute(pool, name))) >> 20 for name in asked]

    first, second = (ok(cu.cuMemAllocAsync(1 << 20, stream)) for _ in range(2))
    found.append([counts(), error(cu.cuMemAllocAsync(2 << 20, stream))])
    ok(cu.cuMemFreeAsync(first, stream))
    ok(cu.cuMemFree(second))  # the other way to free it
    found.append(counts())
    ok(cu.cuMemPoolSetAttribute(pool, names.CU_MEMPOOL_ATTR_USED_MEM_HIGH, cu.cuuint64_t(0)))
    found.append(counts())
    location = cu.CUmemLocation()
    location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    found.append(int(ok(cu.cuMemPoolGetAccess(pool, location))))
    found.append(error(cu.cuMemPoolSetAttribute(pool, names.CU_MEMPOOL_ATTR_USED_MEM_HIGH, cu.cuuint64_t(5))))
    context = ok(cu.cuCtxCreate(None, 0, 0))
    ok(cu.cuMemAllocAsync(1 << 20, 0))
    found.append(counts())
    ok(cu.cuCtxDestroy(context))  # takes its memory along
    found.append(counts())
    ok(cu.cuDeviceSetMemPool(0, default))
    ok(cu.cuMemPoolDestroy(pool))
    expected = [[[2] * 4, "CUDA_ERROR_OUT_OF_MEMORY"], [0, 2, 0, 2], [0] * 4, 3, BAD_VALUE, [1] * 4, [0, 1, 0, 1]]
    assert found == expected, found
    return found


def occupancy_and_attributes_follow_what_is_set() -> Any:
    kernel = function(module("matmul"), "matmul_dynamic")
    limit = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

    def facts() -> list[Any]:
        return [
            int(ok(cu.cuFuncGetAttribute(limit, kernel))),
            int(ok(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(kernel, 256, 100 << 10))),
        ]

    found: list[Any] = [facts(), facts()]
    ok(cu.cuFuncSetAttribute(kernel, limit, 128 << 10))
    found += [facts(), error(cu.cuFuncSetAttribute(kernel, limit, 1 << 30)), facts()]
    assert found[0][1] == 0
    assert found[2] == [128 << 10, 2]
    found.append([int(v) for v in ok(cu.cuOccupancyMaxPotentialBlockSize(kernel, None, 0, 0))])
    found.append([int(v) for v in ok(cu.cuOccupancyMaxPotentialBlockSize(kernel, None, 0, 100))])
    found.append(error(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(kernel, 0, 0)))
    found.append(error(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(12345, 32, 0)))
    assert found[-4:] == [[2, 1024], [16, 100], BAD_VALUE, BAD_HANDLE], found
    return found


def a_host_function_is_called_after_the_work_before_it() -> Any:
    there = to_device(np.zeros(16, np.uint32))
    called: list[int] = []
    stream = ok(cu.cuStreamCreate(0))

    remember = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(called.append)
    ok(cu.cuMemsetD32Async(there, 5, 16, stream))
    start = library.cuLaunchHostFunc
    assert start(ctypes.c_void_p(int(stream)), remember, ctypes.c_void_p(77)) == 0
    ok(cu.cuStreamSynchronize(stream))
    bad = name_of(start(ctypes.c_void_p(12345), remember, None)), name_of(start(None, None, None))
    assert called == [77]
    assert bad == (BAD_HANDLE, BAD_VALUE), bad
    return bad


def what_cannot_be_done_is_said() -> Any:
    pointer = ctypes.c_uint64(1)
    found = [
        name_of(library.cuMemAllocManaged(ctypes.byref(pointer), ctypes.c_size_t(4096), 1)),
        name_of(library.cuCtxSetLimit(0, ctypes.c_size_t(1))),
        name_of(library.cuImportExternalMemory(None, None)),
    ]
    assert found == [UNSUPPORTED, "CUDA_ERROR_UNSUPPORTED_LIMIT", UNSUPPORTED], found
    assert pointer.value == 1
    assert int(ok(cu.cuStreamIsCapturing(0))) == 0
    return found


def the_runtime_finds_what_it_asks_for() -> Any:
    """Old versions of names, attributes of clusters, several attributes of an address at once, a free of nothing."""
    for name in (b"cuDevicePrimaryCtxRelease", b"cuDevicePrimaryCtxReset", b"cuDevicePrimaryCtxSetFlags"):
        address = ctypes.c_void_p()
        assert library.cuGetProcAddress_v2(name, ctypes.byref(address), 7000, ctypes.c_uint64(0), None) == 0
        assert address.value, name
    ok(cu.cuMemFree(0))
    handle, value = function(module("vector"), "vector_add"), ctypes.c_int(-1)
    clusters = []
    for number in range(10, 18):
        assert library.cuFuncGetAttribute(ctypes.byref(value), number, ctypes.c_void_p(int(handle))) == 0
        clusters.append(value.value)
    left = ok(cu.cuOccupancyAvailableDynamicSMemPerBlock(handle, 1, 128))
    mode = int(ok(cu.cuModuleGetLoadingMode()))
    there = int(to_device(np.zeros(100, np.uint8)))
    kind, start, size, ordinal = ctypes.c_int(9), ctypes.c_uint64(9), ctypes.c_size_t(9), ctypes.c_int(9)
    values = (ctypes.c_void_p * 4)(*(ctypes.addressof(each) for each in (kind, start, size, ordinal)))
    found = []
    for pointer in (there + 50, 0x1234):
        words = (4, (ctypes.c_int * 4)(2, 11, 12, 9), values, ctypes.c_uint64(pointer))
        assert library.cuPointerGetAttributes(*words) == 0
        found.append([kind.value, start.value == there, size.value, ordinal.value])
    assert found == [[2, True, 100, 0], [0, False, 0, -2]], found
    assert library.cuPointerGetAttributes(1, (ctypes.c_int * 1)(99), values, ctypes.c_uint64(there)) == 1
    assert library.cuPointerGetAttributes(1, None, values, ctypes.c_uint64(there)) == 1
    return [clusters, left, mode, error(cu.cuOccupancyAvailableDynamicSMemPerBlock(handle, 0, 128))]


def streams_say_what_they_are() -> Any:
    plain, other = ok(cu.cuStreamCreateWithPriority(1, 0)), ok(cu.cuStreamCreate(0))
    urgent = ok(cu.cuStreamCreateWithPriority(0, ok(cu.cuCtxGetStreamPriorityRange())[1]))
    streams = (0, plain, other, urgent)
    assert len({int(ok(cu.cuStreamGetId(each))) for each in streams}) == 4
    assert {int(ok(cu.cuStreamGetDevice(each))) for each in streams} == {0}
    return [int(ok(cu.cuStreamGetPriority(each))) for each in streams] + [error(cu.cuStreamGetPriority(0x77777))]


def a_kernels_name_may_be_long() -> Any:
    """Names of templates are: 3 KiB in the libraries of frameworks."""
    found = []
    for length in (1023, 1024, 4000, 7167):
        text = image("vector").replace(b"vector_add", b"v" * length)
        loaded = ok(cu.cuModuleLoadData(text))
        kept = ok(load_library(text))
        names = (b"v" * length, b"v" * (length - 1))
        found.append([error(cu.cuModuleGetFunction(loaded, each)) for each in names])
        found.append([error(cu.cuLibraryGetKernel(kept, each)) for each in names])
        ok(cu.cuModuleUnload(loaded))
        ok(cu.cuLibraryUnload(kept))
    assert found == [["CUDA_SUCCESS", NOT_FOUND]] * 8, found
    return found


CASES: list[Callable[[], Any]] = [
    copies_find_out_where_addresses_lie,
    fills_of_sixteen_bits,
    registered_host_memory_is_copied,
    a_library_is_a_module_in_every_context_that_uses_it,
    a_library_may_be_loaded_before_there_is_a_context,
    memory_in_the_order_of_a_stream_and_pools,
    a_pool_counts_what_is_used_and_keeps_its_limit,
    occupancy_and_attributes_follow_what_is_set,
    a_host_function_is_called_after_the_work_before_it,
    what_cannot_be_done_is_said,
    the_runtime_finds_what_it_asks_for,
    streams_say_what_they_are,
    a_kernels_name_may_be_long,
]


def main() -> None:
    context = gpu.begin()
    only = sys.argv[1:]
    for case in CASES:
        if not only or case.__name__ in only:
            ok(cu.cuCtxSetCurrent(context))
            print(case.__name__, json.dumps(case()), flush=True)
    ok(cu.cuCtxDestroy(context))


main()
