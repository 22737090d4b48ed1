"""A program on NVIDIA's CUDA runtime: `runtime.py LIBCUDART FATBIN`. It registers kernels as nvcc's host code does.

Every answer is compared with numpy's; the last line is a JSON object with the facts that the tests look at.
"""

from __future__ import annotations

import ctypes
import json
import sys
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

WRAPPER_MAGIC = 0x466243B1
TO_DEVICE, FROM_DEVICE = 1, 2
MAPPED, PER_THREAD_STREAM = 2, 2
DEVICE_MEMORY, UNREGISTERED_MEMORY = 2, 0
INVALID_VALUE, BAD_CONFIGURATION = 1, 9

runtime = ctypes.CDLL(sys.argv[1])


class Dim3(ctypes.Structure):
    _fields_ = (("x", c_uint), ("y", c_uint), ("z", c_uint))


class Wrapper(ctypes.Structure):
    _fields_ = (("magic", c_int), ("version", c_int), ("data", c_void_p), ("unused", c_void_p))


class PointerAttributes(ctypes.Structure):
    # The last field is that of CUDA 13.
    _fields_ = (
        ("type", c_int), ("device", c_int), ("on_device", c_void_p), ("on_host", c_void_p), ("more", c_void_p * 8)
    )  # fmt: skip


def ok(code: int) -> None:
    runtime.cudaGetErrorName.restype = c_char_p
    assert code == 0, f"{code} {runtime.cudaGetErrorName(code).decode()}"


class Program:
    """The kernels and variables of a fat binary, known to the runtime by addresses on the host."""

    def __init__(self, image: bytes) -> None:
        self._image = ctypes.create_string_buffer(image, len(image))
        self._wrapper = Wrapper(WRAPPER_MAGIC, 1, ctypes.addressof(self._image), None)
        self._places: dict[str, Any] = {}
        self._names: list[bytes] = []
        getattr(runtime, "__cudaRegisterFatBinary").restype = POINTER(c_void_p)
        self._handle = getattr(runtime, "__cudaRegisterFatBinary")(byref(self._wrapper))

    def kernel(self, name: str) -> None:
        place = self._places[name] = ctypes.create_string_buffer(1)
        words = (self._handle, place, self._kept(name), self._kept(name), -1, None, None, None, None, None)
        getattr(runtime, "__cudaRegisterFunction")(*words)

    def variable(self, name: str, size: int, constant: bool = False) -> None:
        place = self._places[name] = ctypes.create_string_buffer(size)
        words = (self._handle, place, self._kept(name), self._kept(name), 0, c_size_t(size), int(constant), 0)
        getattr(runtime, "__cudaRegisterVar")(*words)

    def _kept(self, name: str) -> bytes:
        """Return a text that stays where it is: the runtime keeps its address."""
        self._names.append(name.encode())
        return self._names[-1]

    def registered(self) -> None:
        getattr(runtime, "__cudaRegisterFatBinaryEnd")(self._handle)

    def __getitem__(self, name: str) -> Any:
        return self._places[name]

    def launch(self, name: str, grid: int, block: int, *values: Any, shared: int = 0, stream: Any = None) -> int:
        pointers = (c_void_p * max(1, len(values)))(*(ctypes.cast(byref(each), c_void_p) for each in values))
        words = (self[name], Dim3(grid, 1, 1), Dim3(block, 1, 1), pointers, c_size_t(shared), stream)
        code: int = runtime.cudaLaunchKernel(*words)
        return code


def to_device(values: NDArray[Any]) -> c_void_p:
    there = c_void_p()
    ok(runtime.cudaMalloc(byref(there), c_size_t(values.nbytes)))
    ok(runtime.cudaMemcpy(there, c_void_p(values.ctypes.data), c_size_t(values.nbytes), TO_DEVICE))
    return there


def from_device(there: c_void_p, like: NDArray[Any]) -> NDArray[Any]:
    values = np.empty_like(like)
    ok(runtime.cudaMemcpy(c_void_p(values.ctypes.data), there, c_size_t(values.nbytes), FROM_DEVICE))
    return values


def templates(program: Program) -> None:
    floats, numbers = np.arange(1000, dtype=np.float32), np.arange(1000, dtype=np.int32)
    there, others = to_device(floats), to_device(numbers)
    ok(program.launch("_Z5scaleIfEvPKT_PS0_iS0_", 8, 128, there, there, c_int(1000), c_float(1.5)))
    ok(program.launch("_Z5scaleIiEvPKT_PS0_iS0_", 8, 128, others, others, c_int(1000), c_int(-3)))
    assert (from_device(there, floats) == floats * 1.5).all()
    assert (from_device(others, numbers) == numbers * -3).all()
    ok(runtime.cudaFree(there))
    ok(runtime.cudaFree(others))
    ok(runtime.cudaFree(None))


def symbols(program: Program) -> None:
    weights, ones = np.array([1, 0.5, -2, 8], np.float32), np.full(64, 3, np.float32)
    ok(runtime.cudaMemcpyToSymbol(program["factors"], c_void_p(weights.ctypes.data), c_size_t(16), c_size_t(0), 1))
    there = to_device(ones)
    ok(program.launch("weigh", 1, 64, there, there, c_int(64)))
    assert (from_device(there, ones) == np.tile(weights, 16) * 3).all()
    start, end, size = c_int(5), c_int(), c_size_t()
    ok(runtime.cudaMemcpyToSymbol(program["counter"], byref(start), c_size_t(4), c_size_t(0), 1))
    ok(program.launch("count_up", 10, 300, c_int(2)))
    ok(runtime.cudaMemcpyFromSymbol(byref(end), program["counter"], c_size_t(4), c_size_t(0), 2))
    assert end.value == 5 + 10 * 300 * 2
    ok(runtime.cudaGetSymbolSize(byref(size), program["table"]))
    assert size.value == 1024


def shared_memory(program: Program) -> None:
    values, sums = np.arange(1000, dtype=np.int32), np.zeros(8, np.int32)
    there, parts = to_device(values), to_device(sums)
    ok(program.launch("block_sums", 8, 128, there, parts, c_int(1000)))
    assert from_device(parts, sums).sum() == 499500
    ok(program.launch("reverse_in_dynamic_memory", 1, 256, there, shared=1024))
    assert (from_device(there, values)[:256] == np.arange(255, -1, -1)).all()


def streams_and_events(program: Program) -> None:
    stream, begin, end, milliseconds = c_void_p(), c_void_p(), c_void_p(), c_float(-1)
    ok(runtime.cudaStreamCreateWithFlags(byref(stream), 1))
    ok(runtime.cudaEventCreate(byref(begin)))
    ok(runtime.cudaEventCreate(byref(end)))
    values, found = np.full(4096, 2, np.float32), np.zeros(4096, np.float32)
    there = to_device(found)
    ok(runtime.cudaEventRecord(begin, stream))
    size = c_size_t(values.nbytes)
    ok(runtime.cudaMemcpyAsync(there, c_void_p(values.ctypes.data), size, TO_DEVICE, stream))
    ok(program.launch("_Z5scaleIfEvPKT_PS0_iS0_", 32, 128, there, there, c_int(4096), c_float(3), stream=stream))
    ok(runtime.cudaMemcpyAsync(c_void_p(found.ctypes.data), there, size, FROM_DEVICE, stream))
    ok(runtime.cudaEventRecord(end, stream))
    ok(runtime.cudaStreamSynchronize(stream))
    ok(runtime.cudaEventElapsedTime(byref(milliseconds), begin, end))
    assert (found == 6).all()
    assert milliseconds.value >= 0
    ok(runtime.cudaMemset(there, 0, size))
    assert (from_device(there, found) == 0).all()
    ok(runtime.cudaEventDestroy(begin))
    ok(runtime.cudaEventDestroy(end))
    ok(runtime.cudaStreamDestroy(stream))


def a_captured_graph(program: Program) -> None:
    stream, graph, exec_ = c_void_p(), c_void_p(), c_void_p()
    ok(runtime.cudaStreamCreateWithFlags(byref(stream), 1))
    values, found, seen = np.full(4096, 2, np.float32), np.zeros(4096, np.float32), []
    there, size = to_device(values), c_size_t(values.nbytes)
    call = ctypes.CFUNCTYPE(None, c_void_p)(lambda data: seen.append((data, float(found[9]))))
    ok(runtime.cudaStreamBeginCapture(stream, 0))
    ok(program.launch("_Z5scaleIfEvPKT_PS0_iS0_", 32, 128, there, there, c_int(4096), c_float(3), stream=stream))
    ok(runtime.cudaMemcpyAsync(c_void_p(found.ctypes.data), there, size, FROM_DEVICE, stream))
    ok(runtime.cudaLaunchHostFunc(stream, call, c_void_p(5)))
    ok(runtime.cudaStreamEndCapture(stream, byref(graph)))
    assert (from_device(there, found) == 2).all(), "nothing has run yet"
    found[:] = 0
    ok(runtime.cudaGraphInstantiateWithFlags(byref(exec_), graph, ctypes.c_ulonglong(0)))
    for _ in range(2):
        ok(runtime.cudaGraphLaunch(exec_, stream))
    ok(runtime.cudaStreamSynchronize(stream))
    assert (found == 18).all()
    assert seen == [(5, 6.0), (5, 18.0)]
    ok(runtime.cudaGraphExecDestroy(exec_))
    ok(runtime.cudaGraphDestroy(graph))
    ok(runtime.cudaStreamDestroy(stream))


def memory_of_other_kinds(program: Program) -> None:
    """In the order of a stream, in the thread's own default stream, and on the host where kernels reach it."""
    there, here, mapped = c_void_p(), c_void_p(), c_void_p()
    own, size = c_void_p(PER_THREAD_STREAM), c_size_t(4096)
    ok(runtime.cudaMallocAsync(byref(there), size, own))
    ok(runtime.cudaMemsetAsync(there, 0, size, own))
    ok(runtime.cudaHostAlloc(byref(here), size, MAPPED))
    ok(runtime.cudaHostGetDevicePointer(byref(mapped), here, 0))
    array = np.frombuffer(memoryview((ctypes.c_char * 4096).from_address(here.value or 0)), np.float32)
    array[:] = 7
    ok(program.launch("_Z5scaleIfEvPKT_PS0_iS0_", 8, 128, mapped, there, c_int(1024), c_float(2), stream=own))
    ok(program.launch("_Z5scaleIfEvPKT_PS0_iS0_", 8, 128, there, mapped, c_int(1024), c_float(3), stream=own))
    ok(runtime.cudaFreeAsync(there, own))
    ok(runtime.cudaStreamSynchronize(own))
    assert (array == 42).all()
    ok(runtime.cudaFreeHost(here))


def attributes(program: Program) -> None:
    of_function, blocks, of_pointer = (ctypes.c_size_t * 64)(), c_int(), PointerAttributes()
    ok(runtime.cudaFuncGetAttributes(of_function, program["block_sums"]))
    assert of_function[0] == 512, "shared memory"
    ok(runtime.cudaOccupancyMaxActiveBlocksPerMultiprocessor(byref(blocks), program["block_sums"], 128, c_size_t(0)))
    assert blocks.value >= 1
    there = to_device(np.zeros(4, np.int32))
    ok(runtime.cudaPointerGetAttributes(byref(of_pointer), there))
    assert (of_pointer.type, of_pointer.device, of_pointer.on_device) == (DEVICE_MEMORY, 0, there.value)
    ok(runtime.cudaPointerGetAttributes(byref(of_pointer), byref(blocks)))
    assert of_pointer.type == UNREGISTERED_MEMORY


def errors(program: Program) -> None:
    """A launch that no device can do: said at once, or, where launches are posted, by the next call with an answer."""
    codes = [program.launch("weigh", 1, 4096, c_void_p(), c_void_p(), c_int(0)), runtime.cudaDeviceSynchronize()]
    assert any(code in (INVALID_VALUE, BAD_CONFIGURATION) for code in codes), codes
    assert runtime.cudaGetLastError() != 0
    assert runtime.cudaGetLastError() == 0
    assert runtime.cudaFree(c_void_p(0x123)) == INVALID_VALUE
    runtime.cudaGetLastError()


def facts() -> dict[str, Any]:
    version, count, available, total = c_int(), c_int(), c_size_t(), c_size_t()
    properties = ctypes.create_string_buffer(8192)
    ok(runtime.cudaRuntimeGetVersion(byref(version)))
    ok(runtime.cudaGetDeviceCount(byref(count)))
    ok(runtime.cudaMemGetInfo(byref(available), byref(total)))
    newest = getattr(runtime, "cudaGetDeviceProperties_v2", None) or runtime.cudaGetDeviceProperties
    ok(newest(properties, 0))
    driver = ctypes.CDLL("libcuda.so.1")
    report = ctypes.create_string_buffer(4096)
    driver.gputax_runtime_report(report, c_size_t(4096))
    return {
        "version": version.value,
        "count": count.value,
        "total": total.value,
        "name": properties.value.decode(),
        "runtime": json.loads(report.value),
    }


def main() -> None:
    count = c_int()
    code = runtime.cudaGetDeviceCount(byref(count))
    if code:
        print(json.dumps({"refused": code}))
        return
    program = Program(Path(sys.argv[2]).read_bytes())
    for name in ("_Z5scaleIfEvPKT_PS0_iS0_", "_Z5scaleIiEvPKT_PS0_iS0_", "weigh", "count_up", "block_sums"):
        program.kernel(name)
    program.kernel("reverse_in_dynamic_memory")
    program.variable("factors", 16, constant=True)
    program.variable("counter", 4)
    program.variable("table", 1024)
    program.registered()
    for _ in range(2):  # again behind a reset, which takes everything away
        templates(program)
        symbols(program)
        shared_memory(program)
        streams_and_events(program)
        a_captured_graph(program)
        memory_of_other_kinds(program)
        attributes(program)
        errors(program)
        ok(runtime.cudaDeviceSynchronize())
        ok(runtime.cudaDeviceReset())
    print(json.dumps(facts()))


main()
