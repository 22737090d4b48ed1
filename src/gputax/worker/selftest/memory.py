"""Programs that move bytes: copies of all sizes and alignments, fills, variables of modules, pools, host memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gputax.worker.selftest.stage import Array, Questions, Stage, digest, hold

# Around the sizes at which a transport or a driver changes its way: a message, a page, a staging buffer.
SIZES = (1, 3, 255, 4096, 7167, 7168, 7169, 65535, 65536, 65537, 300_000, 5_000_001)
ALIGNMENTS = (0, 1, 3, 8)
POOL_BYTES = 4 << 20
MAPPED = 2
COUNT = 3000
USED_BYTES_NOW = 7  # CU_MEMPOOL_ATTR_USED_MEM_CURRENT
MEMORY_TYPE, DEVICE_POINTER, HOST_POINTER = 2, 3, 4
Copy = Callable[[int, int, int], None]


def copies(stage: Stage) -> Questions:
    """Copy in every direction and compare all bytes."""
    driver = stage.driver
    stream = driver.made("cuStreamCreate", 1)

    def waiting(name: str) -> Copy:
        def copy(to: int, source: int, size: int) -> None:
            driver(name, to, source, size, stream)
            driver("cuStreamSynchronize", stream)

        return copy

    ways: dict[str, tuple[Copy, Copy]] = {
        "blocking": (partial(driver, "cuMemcpyHtoD_v2"), partial(driver, "cuMemcpyDtoH_v2")),
        "in a stream": (waiting("cuMemcpyHtoDAsync_v2"), waiting("cuMemcpyDtoHAsync_v2")),
        "by address": (partial(driver, "cuMemcpy"), partial(driver, "cuMemcpy")),
    }
    for size in SIZES:
        for title, (copy_in, copy_out) in ways.items():
            yield f"{size} bytes, {title}", partial(_there_and_back, stage, size, copy_in, copy_out)
        yield f"{size} bytes, on the device", partial(_on_the_device, stage, size)


def _there_and_back(stage: Stage, size: int, copy_in: Copy, copy_out: Copy) -> str:
    most = max(ALIGNMENTS)
    data = stage.random.integers(0, 256, size + most, dtype=np.uint8)
    there = stage.room(size + most)
    back = np.zeros(size + most, np.uint8)
    for here in ALIGNMENTS:
        for away in ALIGNMENTS:
            copy_in(there + away, data.ctypes.data + here, size)
            back[:] = 0
            copy_out(back.ctypes.data + here, there + away, size)
            hold(bool((back[here : here + size] == data[here : here + size]).all()), f"at {here} and {away} it differs")
            hold(not back[:here].any() and not back[here + size :].any(), f"at {here} it wrote beside its target")
    stage.free(there)
    return digest(data)


def _on_the_device(stage: Stage, size: int) -> str:
    data = stage.random.integers(0, 256, size, dtype=np.uint8)
    there = stage.to_device(data)
    other = stage.room(size + max(ALIGNMENTS))
    for away in ALIGNMENTS:
        stage.driver("cuMemcpyDtoD_v2", other + away, there, size)
        hold(bool((stage.from_device(other + away, data) == data).all()), f"at {away} it differs")
    stage.free(there, other)
    return digest(data)


def fills(stage: Stage) -> Questions:
    """Fill by one, two and four bytes."""
    for name, width, value in (
        ("cuMemsetD8_v2", 1, 0x5A),
        ("cuMemsetD16_v2", 2, 0xBEEF),
        ("cuMemsetD32_v2", 4, 0xDEADBEEF),
    ):
        yield f"{8 * width} bits", partial(_filled, stage, name, width, value)
    there = stage.room(64)
    yield "beyond the end", partial(stage.seen, "cuMemsetD8_v2", there, 1, 65)
    yield "32 bits at an odd address", partial(stage.seen, "cuMemsetD32_v2", there + 2, 1, 1)


def _filled(stage: Stage, name: str, width: int, value: int) -> str:
    expected = np.zeros(4000, np.uint8)
    there = stage.to_device(expected)
    for start, count in ((0, 1), (width * 10, 100), (width * 200, 3)):
        stage.driver(name, there + start, value, count)
        expected[start : start + width * count] = np.frombuffer(value.to_bytes(width, "little") * count, np.uint8)
    found = stage.from_device(there, expected)
    stage.free(there)
    hold(bool((found == expected).all()), "the bytes are not those of the fill")
    return digest(found)


def variables(stage: Stage) -> Questions:
    """Read and write a variable of a module."""
    driver = stage.driver
    module = stage.module("language")
    pointer, size = ctypes.c_uint64(), ctypes.c_size_t()
    where = (ctypes.byref(pointer), ctypes.byref(size))
    yield "found", lambda: [driver.code("cuModuleGetGlobal_v2", *where, module, b"table"), size.value]
    yield "first values", lambda: stage.from_device(pointer.value, np.zeros(size.value // 4, np.float32)).tolist()

    def written() -> list[float]:
        values = np.arange(size.value // 4, dtype=np.float32)
        driver("cuMemcpyHtoD_v2", pointer.value, values.ctypes.data, values.nbytes)
        found = stage.from_device(pointer.value, values)
        hold(bool((found == values).all()), "it keeps other values than were written")
        return [float(value) for value in found]

    yield "written values", written
    yield "freed", lambda: stage.seen("cuMemFree_v2", pointer.value)
    yield "one that is not there", lambda: driver.code("cuModuleGetGlobal_v2", *where, module, b"no_such_variable")


def pools(stage: Stage) -> Questions:
    """Allocate in the order of a stream, from the default pool and from one of its own."""
    driver = stage.driver
    stream = driver.made("cuStreamCreate", 1)
    yield "of the default pool", partial(_from_pool, stage, stream, None)
    yield "the default pool is the current one", partial(_is_current, stage)
    properties = (ctypes.c_uint8 * 88)()  # CUmemPoolProps
    ctypes.c_int.from_buffer(properties, 0).value = 1  # pinned
    ctypes.c_int.from_buffer(properties, 8).value = 1  # on a device
    ctypes.c_int.from_buffer(properties, 12).value = stage.device
    pool = ctypes.c_uint64()
    yield "created", lambda: driver.code("cuMemPoolCreate", ctypes.byref(pool), properties)
    yield "of its own pool", lambda: _from_pool(stage, stream, pool.value)
    yield "trimmed", lambda: driver.code("cuMemPoolTrimTo", pool.value, 0)
    yield "destroyed", lambda: driver.code("cuMemPoolDestroy", pool.value)
    yield "freed twice", partial(_freed_twice, stage, stream)


def _from_pool(stage: Stage, stream: int, pool: int | None) -> list[Any]:
    driver = stage.driver
    if pool is None:
        pointer = driver.made("cuMemAllocAsync", POOL_BYTES, stream)
        pool = driver.made("cuDeviceGetDefaultMemPool", stage.device)
    else:
        pointer = driver.made("cuMemAllocFromPoolAsync", POOL_BYTES, pool, stream)
    values, back = stage.floats(POOL_BYTES // 4), np.zeros(POOL_BYTES // 4, np.float32)
    driver("cuMemcpyHtoDAsync_v2", pointer, values.ctypes.data, values.nbytes, stream)
    driver("cuMemcpyDtoHAsync_v2", back.ctypes.data, pointer, back.nbytes, stream)
    driver("cuStreamSynchronize", stream)
    hold(bool((values == back).all()), "the bytes differ")
    used = _used(stage, pool)
    driver("cuMemFreeAsync", pointer, stream)
    driver("cuStreamSynchronize", stream)
    return [digest(back), used, _used(stage, pool)]


def _used(stage: Stage, pool: int) -> list[int]:
    value = ctypes.c_uint64()
    code = stage.driver.code("cuMemPoolGetAttribute", pool, USED_BYTES_NOW, ctypes.byref(value))
    return [code, value.value]


def _is_current(stage: Stage) -> bool:
    names = ("cuDeviceGetDefaultMemPool", "cuDeviceGetMemPool")
    first, second = (stage.driver.made(name, stage.device) for name in names)
    return first == second


def _freed_twice(stage: Stage, stream: int) -> list[int]:
    pointer = stage.driver.made("cuMemAllocAsync", 4096, stream)
    codes = [stage.driver.code("cuMemFreeAsync", pointer, stream) for _ in range(2)]
    return [*codes, stage.driver.code("cuStreamSynchronize", stream)]


def host_memory(stage: Stage) -> Questions:
    """Use host memory that kernels reach, that is pinned, and that the program registers."""
    driver = stage.driver
    add = stage.kernel("vector", "vector_add")
    yield "a kernel reads and writes mapped memory", partial(_mapped, stage, add)
    yield "copies from and to pinned memory", partial(_pinned, stage)
    yield "pointers of mapped memory", partial(_pointers, stage)
    own = np.zeros(1 << 16, np.uint8)
    page = (own.ctypes.data + 4095) & ~4095
    yield "registered", lambda: [driver.code("cuMemHostRegister_v2", page, 8192, 0) for _ in range(2)]
    yield "unregistered", lambda: [driver.code("cuMemHostUnregister", page) for _ in range(2)]
    yield "registered for kernels", lambda: driver.code("cuMemHostRegister_v2", page, 8192, MAPPED)
    yield "unregistered after that", lambda: driver.code("cuMemHostUnregister", page)
    yield "registered with unknown flags", lambda: driver.code("cuMemHostRegister_v2", page, 8192, 1 << 20)
    yield "none at all", lambda: driver.code("cuMemHostRegister_v2", 0, 8192, 0)


def _array_at(pointer: int, count: int) -> Array:
    return np.frombuffer(memoryview((ctypes.c_char * (4 * count)).from_address(pointer)), np.float32)


def _mapped(stage: Stage, add: int) -> str:
    driver = stage.driver
    host = [driver.made("cuMemHostAlloc", 4 * COUNT, MAPPED) for _ in range(2)]
    there = [driver.made("cuMemHostGetDevicePointer_v2", pointer, 0) for pointer in host]
    values, out = (_array_at(pointer, COUNT) for pointer in host)
    added = stage.floats(COUNT)
    device = stage.to_device(added)
    for turn in range(3):
        values[:] = np.arange(COUNT) + turn
        stage.run(add, (12,), (256,), there[0], device, there[1], ctypes.c_int(COUNT))
        stage.wait()
        hold(bool((out == values + added).all()), "the kernel's sums are wrong")
    found = digest(out)
    stage.free(device)
    for pointer in host:
        driver("cuMemFreeHost", pointer)
    return found


def _pinned(stage: Stage) -> str:
    driver = stage.driver
    pointer = driver.made("cuMemAllocHost_v2", 4 * COUNT)
    values = _array_at(pointer, COUNT)
    values[:] = stage.floats(COUNT)
    there = stage.room(4 * COUNT)
    driver("cuMemcpyHtoD_v2", there, pointer, 4 * COUNT)
    expected = values.copy()
    values[:] = 0
    driver("cuMemcpyDtoH_v2", pointer, there, 4 * COUNT)
    hold(bool((values == expected).all()), "the bytes differ")
    found = digest(values)
    driver("cuMemFreeHost", pointer)
    stage.free(there)
    return found


def _pointers(stage: Stage) -> list[Any]:
    driver = stage.driver
    host = driver.made("cuMemHostAlloc", 4096, MAPPED)
    there, device = driver.made("cuMemHostGetDevicePointer_v2", host, 0), stage.room(4096)

    def attribute(number: int, at: int) -> list[int]:
        value = ctypes.c_uint64()
        return [driver.code("cuPointerGetAttribute", ctypes.byref(value), number, at), value.value]

    kinds = [attribute(MEMORY_TYPE, at) for at in (host, there, device, device + 4095)]
    back = attribute(HOST_POINTER, there + 8) == [0, host + 8]
    forth = attribute(DEVICE_POINTER, host + 8) == [0, there + 8]
    offset = driver.made("cuMemHostGetDevicePointer_v2", host + 100, 0) == there + 100
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    code = driver.code("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), device + 100)
    stage.free(device)
    driver("cuMemFreeHost", host)
    return [kinds, back, forth, offset, [code, base.value == device, size.value]]
