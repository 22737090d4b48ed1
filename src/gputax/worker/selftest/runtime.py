"""A program on NVIDIA's CUDA runtime, with a prebuilt fat binary: it registers kernels as nvcc's host code does."""

from __future__ import annotations

import ctypes
import sysconfig
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gputax.worker.selftest.libraries import KERNELS, SCALE_FLOATS, SCALE_NUMBERS
from gputax.worker.selftest.stage import Questions, RefusedError, hold

WRAPPER_MAGIC = 0x466243B1
TO_DEVICE, FROM_DEVICE = 1, 2
MAPPED, PER_THREAD_STREAM = 2, 2
DEVICE_MEMORY, UNREGISTERED_MEMORY = 2, 0
INVALID_VALUE, BAD_CONFIGURATION = 1, 9


class Dim3(ctypes.Structure):
    """dim3."""

    _fields_ = (("x", c_uint), ("y", c_uint), ("z", c_uint))


class Wrapper(ctypes.Structure):
    """What nvcc puts around a fat binary."""

    _fields_ = (("magic", c_int), ("version", c_int), ("data", c_void_p), ("unused", c_void_p))


class PointerAttributes(ctypes.Structure):
    """cudaPointerAttributes, with the last field of CUDA 13."""

    _fields_ = (
        ("type", c_int), ("device", c_int), ("on_device", c_void_p), ("on_host", c_void_p), ("more", c_void_p * 8)
    )  # fmt: skip


def find_cudart(given: str = "") -> str:
    """Return the library: the given file, that of an installed package, or what the loader finds; empty without one."""
    packages = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    found = sorted(map(str, packages.glob("*/lib/libcudart.so.*")), reverse=True)
    for name in (given,) if given else (*found, "libcudart.so.13", "libcudart.so.12"):
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return name
    return ""


class Program:
    """The kernels and variables of a fat binary, known to the runtime by addresses on the host."""

    def __init__(self, library: str, image: bytes) -> None:
        self.runtime = ctypes.CDLL(library)
        self.runtime.cudaGetErrorName.restype = c_char_p
        self._image = ctypes.create_string_buffer(image, len(image))
        self._wrapper = Wrapper(WRAPPER_MAGIC, 1, ctypes.addressof(self._image), None)
        self._places: dict[str, Any] = {}
        self._names: list[bytes] = []
        getattr(self.runtime, "__cudaRegisterFatBinary").restype = POINTER(c_void_p)
        self._handle = getattr(self.runtime, "__cudaRegisterFatBinary")(byref(self._wrapper))

    def ok(self, code: int) -> None:
        """Raise for anything but success."""
        if code:
            raise RefusedError(self.runtime.cudaGetErrorName(code).decode(), code)

    def kernel(self, name: str) -> None:
        """Register a kernel."""
        place = self._places[name] = ctypes.create_string_buffer(1)
        words = (self._handle, place, self._kept(name), self._kept(name), -1, None, None, None, None, None)
        getattr(self.runtime, "__cudaRegisterFunction")(*words)

    def variable(self, name: str, size: int, constant: bool = False) -> None:
        """Register a variable."""
        place = self._places[name] = ctypes.create_string_buffer(size)
        words = (self._handle, place, self._kept(name), self._kept(name), 0, c_size_t(size), int(constant), 0)
        getattr(self.runtime, "__cudaRegisterVar")(*words)

    def _kept(self, name: str) -> bytes:
        """Return a text that stays where it is: the runtime keeps its address."""
        self._names.append(name.encode())
        return self._names[-1]

    def registered(self) -> None:
        """Say that all is registered."""
        getattr(self.runtime, "__cudaRegisterFatBinaryEnd")(self._handle)

    def __getitem__(self, name: str) -> Any:
        return self._places[name]

    def launch(self, name: str, grid: int, block: int, *values: Any, shared: int = 0, stream: Any = None) -> int:
        """Launch a kernel and return the code."""
        pointers = (c_void_p * max(1, len(values)))(*(ctypes.cast(byref(each), c_void_p) for each in values))
        words = (self[name], Dim3(grid, 1, 1), Dim3(block, 1, 1), pointers, c_size_t(shared), stream)
        code: int = self.runtime.cudaLaunchKernel(*words)
        return code

    def to_device(self, values: NDArray[Any]) -> c_void_p:
        """Return device memory with these values."""
        there = c_void_p()
        self.ok(self.runtime.cudaMalloc(byref(there), c_size_t(values.nbytes)))
        self.ok(self.runtime.cudaMemcpy(there, c_void_p(values.ctypes.data), c_size_t(values.nbytes), TO_DEVICE))
        return there

    def from_device(self, there: c_void_p, like: NDArray[Any]) -> NDArray[Any]:
        """Return the values there."""
        values = np.empty_like(like)
        self.ok(self.runtime.cudaMemcpy(c_void_p(values.ctypes.data), there, c_size_t(values.nbytes), FROM_DEVICE))
        return values

    def templates(self) -> None:
        """Kernels that nvcc made from one template."""
        floats, numbers = np.arange(1000, dtype=np.float32), np.arange(1000, dtype=np.int32)
        there, others = self.to_device(floats), self.to_device(numbers)
        self.ok(self.launch(SCALE_FLOATS, 8, 128, there, there, c_int(1000), c_float(1.5)))
        self.ok(self.launch(SCALE_NUMBERS, 8, 128, others, others, c_int(1000), c_int(-3)))
        hold(bool((self.from_device(there, floats) == floats * 1.5).all()), "a template of float")
        hold(bool((self.from_device(others, numbers) == numbers * -3).all()), "a template of int")
        self.ok(self.runtime.cudaFree(there))
        self.ok(self.runtime.cudaFree(others))
        self.ok(self.runtime.cudaFree(None))

    def symbols(self) -> None:
        """Constant memory, and atomics on a variable."""
        weights, ones = np.array([1, 0.5, -2, 8], np.float32), np.full(64, 3, np.float32)
        self.ok(
            self.runtime.cudaMemcpyToSymbol(
                self["factors"], c_void_p(weights.ctypes.data), c_size_t(16), c_size_t(0), 1
            )
        )
        there = self.to_device(ones)
        self.ok(self.launch("weigh", 1, 64, there, there, c_int(64)))
        hold(bool((self.from_device(there, ones) == np.tile(weights, 16) * 3).all()), "a constant symbol")
        start, end, size = c_int(5), c_int(), c_size_t()
        self.ok(self.runtime.cudaMemcpyToSymbol(self["counter"], byref(start), c_size_t(4), c_size_t(0), 1))
        self.ok(self.launch("count_up", 10, 300, c_int(2)))
        self.ok(self.runtime.cudaMemcpyFromSymbol(byref(end), self["counter"], c_size_t(4), c_size_t(0), 2))
        hold(bool(end.value == 5 + 10 * 300 * 2), "atomics on a symbol")
        self.ok(self.runtime.cudaGetSymbolSize(byref(size), self["table"]))
        hold(bool(size.value == 1024), "the size of a symbol")

    def shared_memory(self) -> None:
        """Static and dynamic shared memory."""
        values, sums = np.arange(1000, dtype=np.int32), np.zeros(8, np.int32)
        there, parts = self.to_device(values), self.to_device(sums)
        self.ok(self.launch("block_sums", 8, 128, there, parts, c_int(1000)))
        hold(bool(self.from_device(parts, sums).sum() == 499500), "sums through shared memory")
        self.ok(self.launch("reverse_in_dynamic_memory", 1, 256, there, shared=1024))
        hold(bool((self.from_device(there, values)[:256] == np.arange(255, -1, -1)).all()), "dynamic shared memory")

    def streams_and_events(self) -> None:
        """Work in a stream, between two events."""
        stream, begin, end, milliseconds = c_void_p(), c_void_p(), c_void_p(), c_float(-1)
        self.ok(self.runtime.cudaStreamCreateWithFlags(byref(stream), 1))
        self.ok(self.runtime.cudaEventCreate(byref(begin)))
        self.ok(self.runtime.cudaEventCreate(byref(end)))
        values, found = np.full(4096, 2, np.float32), np.zeros(4096, np.float32)
        there = self.to_device(found)
        self.ok(self.runtime.cudaEventRecord(begin, stream))
        size = c_size_t(values.nbytes)
        self.ok(self.runtime.cudaMemcpyAsync(there, c_void_p(values.ctypes.data), size, TO_DEVICE, stream))
        self.ok(self.launch(SCALE_FLOATS, 32, 128, there, there, c_int(4096), c_float(3), stream=stream))
        self.ok(self.runtime.cudaMemcpyAsync(c_void_p(found.ctypes.data), there, size, FROM_DEVICE, stream))
        self.ok(self.runtime.cudaEventRecord(end, stream))
        self.ok(self.runtime.cudaStreamSynchronize(stream))
        self.ok(self.runtime.cudaEventElapsedTime(byref(milliseconds), begin, end))
        hold(bool((found == 6).all()), "work in a stream")
        hold(bool(milliseconds.value >= 0), "the time between events")
        self.ok(self.runtime.cudaMemset(there, 0, size))
        hold(bool((self.from_device(there, found) == 0).all()), "a fill")
        self.ok(self.runtime.cudaEventDestroy(begin))
        self.ok(self.runtime.cudaEventDestroy(end))
        self.ok(self.runtime.cudaStreamDestroy(stream))

    def a_captured_graph(self) -> None:
        """A graph by stream capture, with a host function, launched twice."""
        stream, graph, exec_ = c_void_p(), c_void_p(), c_void_p()
        self.ok(self.runtime.cudaStreamCreateWithFlags(byref(stream), 1))
        values, found, seen = np.full(4096, 2, np.float32), np.zeros(4096, np.float32), []
        there, size = self.to_device(values), c_size_t(values.nbytes)
        call = ctypes.CFUNCTYPE(None, c_void_p)(lambda data: seen.append((data, float(found[9]))))
        self.ok(self.runtime.cudaStreamBeginCapture(stream, 0))
        self.ok(self.launch(SCALE_FLOATS, 32, 128, there, there, c_int(4096), c_float(3), stream=stream))
        self.ok(self.runtime.cudaMemcpyAsync(c_void_p(found.ctypes.data), there, size, FROM_DEVICE, stream))
        self.ok(self.runtime.cudaLaunchHostFunc(stream, call, c_void_p(5)))
        self.ok(self.runtime.cudaStreamEndCapture(stream, byref(graph)))
        hold(bool((self.from_device(there, found) == 2).all()), "nothing has run yet")
        found[:] = 0
        self.ok(self.runtime.cudaGraphInstantiateWithFlags(byref(exec_), graph, ctypes.c_ulonglong(0)))
        for _ in range(2):
            self.ok(self.runtime.cudaGraphLaunch(exec_, stream))
        self.ok(self.runtime.cudaStreamSynchronize(stream))
        hold(bool((found == 18).all()), "two launches of the graph")
        hold(bool(seen == [(5, 6.0), (5, 18.0)]), "the graph's host function")
        self.ok(self.runtime.cudaGraphExecDestroy(exec_))
        self.ok(self.runtime.cudaGraphDestroy(graph))
        self.ok(self.runtime.cudaStreamDestroy(stream))

    def memory_of_other_kinds(self) -> None:
        """In the order of a stream, in the thread's own default stream, and on the host where kernels reach it."""
        there, here, mapped = c_void_p(), c_void_p(), c_void_p()
        own, size = c_void_p(PER_THREAD_STREAM), c_size_t(4096)
        self.ok(self.runtime.cudaMallocAsync(byref(there), size, own))
        self.ok(self.runtime.cudaMemsetAsync(there, 0, size, own))
        self.ok(self.runtime.cudaHostAlloc(byref(here), size, MAPPED))
        self.ok(self.runtime.cudaHostGetDevicePointer(byref(mapped), here, 0))
        array = np.frombuffer(memoryview((ctypes.c_char * 4096).from_address(here.value or 0)), np.float32)
        array[:] = 7
        self.ok(self.launch(SCALE_FLOATS, 8, 128, mapped, there, c_int(1024), c_float(2), stream=own))
        self.ok(self.launch(SCALE_FLOATS, 8, 128, there, mapped, c_int(1024), c_float(3), stream=own))
        self.ok(self.runtime.cudaFreeAsync(there, own))
        self.ok(self.runtime.cudaStreamSynchronize(own))
        hold(bool((array == 42).all()), "memory in the order of a stream")
        self.ok(self.runtime.cudaFreeHost(here))

    def attributes(self) -> None:
        """Attributes of functions and pointers, occupancy."""
        of_function, blocks, of_pointer = (ctypes.c_size_t * 64)(), c_int(), PointerAttributes()
        self.ok(self.runtime.cudaFuncGetAttributes(of_function, self["block_sums"]))
        hold(bool(of_function[0] == 512), "shared memory")
        self.ok(
            self.runtime.cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                byref(blocks), self["block_sums"], 128, c_size_t(0)
            )
        )
        hold(bool(blocks.value >= 1), "occupancy")
        there = self.to_device(np.zeros(4, np.int32))
        self.ok(self.runtime.cudaPointerGetAttributes(byref(of_pointer), there))
        hold(
            bool((of_pointer.type, of_pointer.device, of_pointer.on_device) == (DEVICE_MEMORY, 0, there.value)),
            "attributes of a device pointer",
        )
        self.ok(self.runtime.cudaPointerGetAttributes(byref(of_pointer), byref(blocks)))
        hold(bool(of_pointer.type == UNREGISTERED_MEMORY), "attributes of a host pointer")

    def errors(self) -> None:
        """A launch that no device can do: said at once or, where launches are posted, by the next answered call."""
        codes = [self.launch("weigh", 1, 4096, c_void_p(), c_void_p(), c_int(0)), self.runtime.cudaDeviceSynchronize()]
        hold(bool(any(code in (INVALID_VALUE, BAD_CONFIGURATION) for code in codes)), "a launch with too many threads")
        hold(bool(self.runtime.cudaGetLastError() != 0), "the error is kept")
        hold(bool(self.runtime.cudaGetLastError() == 0), "the error is forgotten once read")
        hold(bool(self.runtime.cudaFree(c_void_p(0x123)) == INVALID_VALUE), "a wrong pointer")
        self.runtime.cudaGetLastError()

    def prints(self) -> None:
        """A kernel that prints; what it says appears where its driver is."""
        said = self.to_device(np.zeros(1, np.int32))
        self.ok(self.launch("say", 3, 1, c_int(42), said))
        hold(self.from_device(said, np.zeros(1, np.int32)).item() == 3, "three blocks have printed")

    def facts(self) -> dict[str, Any]:
        """What the runtime says of itself and its device."""
        version, count, available, total = c_int(), c_int(), c_size_t(), c_size_t()
        properties = ctypes.create_string_buffer(8192)
        self.ok(self.runtime.cudaRuntimeGetVersion(byref(version)))
        self.ok(self.runtime.cudaGetDeviceCount(byref(count)))
        self.ok(self.runtime.cudaMemGetInfo(byref(available), byref(total)))
        newest = getattr(self.runtime, "cudaGetDeviceProperties_v2", None) or self.runtime.cudaGetDeviceProperties
        self.ok(newest(properties, 0))
        return {
            "version": version.value,
            "count": count.value,
            "total": total.value,
            "name": properties.value.decode(),
        }

    def register(self) -> None:
        """Make the kernels and variables of the image known."""
        for name in KERNELS:
            self.kernel(name)
        self.variable("factors", 16, constant=True)
        self.variable("counter", 4)
        self.variable("table", 1024)
        self.registered()


CASES = (
    "templates", "symbols", "shared_memory", "streams_and_events", "a_captured_graph", "memory_of_other_kinds",
    "prints", "attributes", "errors",
)  # fmt: skip


def questions(program: Program) -> Questions:
    """Run every case twice: a reset takes everything away."""
    program.register()
    for turn in ("", " after a reset"):
        for name in CASES:
            yield f"{name.replace('_', ' ')}{turn}", getattr(program, name)
        yield f"reset{turn}", program.runtime.cudaDeviceReset
    yield "facts", program.facts
