"""The engine `driver`: operations of the CUDA driver itself, on whatever `libcuda.so.1` the environment provides."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gputax.errors import EngineError, PreflightError, UsageError
from gputax.plan.claims import NULL_KERNELS, computes_nothing
from gputax.plan.driver import SOFTWARE_DEVICE_NAME
from gputax.plan.workloads import ALLOCATION_BYTES, OPERATIONS, SMALL_COPY_BYTES, MicroOperation
from gputax.worker.engines.driver_context import DriverContext, bindings_version, kernel_arguments
from gputax.worker.engines.engine import EngineRequest, InFlight, NoResponse, Samples
from gputax.worker.probes.driver_library import loaded_library

Run = Callable[[], None]
FLOATS = SMALL_COPY_BYTES // 4
THREADS_PER_BLOCK = 256
LAUNCH_THREADS = 32
SCALE = 3.0
TIMED_LAUNCHES = 40
EVENTS_WITHOUT_TIME = 2  # CU_EVENT_DISABLE_TIMING


def operation_run(context: DriverContext, operation: MicroOperation, seed: int) -> tuple[Run, list[Any]]:
    """Return the operation ready to run, and everything that must stay alive with it; a wrong result is an error."""
    match operation.kind:
        case "allocate":
            return _allocate(context), []
        case "synchronise":
            return _synchronise(context), []
        case "copy-in":
            return _copy_in(context, operation.bytes_per_run, seed)
        case "copy-out":
            return _copy_out(context, operation.bytes_per_run, seed)
        case "launch":
            return _launch(context, seed)
    return _operation(context, seed)


def _allocate(context: DriverContext) -> Run:
    allocate, free, failure = context.api.cuMemAlloc, context.api.cuMemFree, context.failure

    def run() -> None:
        code, pointer = allocate(ALLOCATION_BYTES)
        if code:
            raise failure("cuMemAlloc", code)
        (code,) = free(pointer)
        if code:
            raise failure("cuMemFree", code)

    return run


def _synchronise(context: DriverContext) -> Run:
    synchronize, failure = context.synchronize, context.failure

    def run() -> None:
        (code,) = synchronize()
        if code:
            raise failure("cuCtxSynchronize", code)

    return run


def _copy_in(context: DriverContext, size: int, seed: int) -> tuple[Run, list[Any]]:
    host, back = _pattern(size, seed), np.zeros(size, dtype=np.uint8)
    device, source = context.allocate(size), int(host.ctypes.data)
    copy, synchronize, failure = context.api.cuMemcpyHtoD, context.synchronize, context.failure

    def run() -> None:
        (code,) = copy(device, source, size)
        if code:
            raise failure("cuMemcpyHtoD", code)
        # A copy from pageable memory may return when it is staged; the operation ends when it has arrived.
        (code,) = synchronize()
        if code:
            raise failure("cuCtxSynchronize", code)

    run()
    context.call("cuMemcpyDtoH", int(back.ctypes.data), device, size)
    _require_equal(back, host, f"{size} bytes copied in and read back")
    return run, [host]


def _copy_out(context: DriverContext, size: int, seed: int) -> tuple[Run, list[Any]]:
    host, back = _pattern(size, seed), np.zeros(size, dtype=np.uint8)
    device, target = context.allocate(size), int(back.ctypes.data)
    context.call("cuMemcpyHtoD", device, int(host.ctypes.data), size)
    context.call("cuCtxSynchronize")
    copy, failure = context.api.cuMemcpyDtoH, context.failure

    def run() -> None:
        (code,) = copy(target, device, size)
        if code:
            raise failure("cuMemcpyDtoH", code)

    run()
    _require_equal(back, host, f"{size} bytes copied in and read back")
    return run, [back]


class _Kernel:
    """`touch` with its three buffers and the values that they must contain afterwards; it stops at 1024 floats."""

    def __init__(self, context: DriverContext, count: int, seed: int) -> None:
        generator = np.random.default_rng(seed)
        # Whole numbers: exact with and without a fused multiply-add.
        self.a = generator.integers(0, 256, count).astype(np.float32)
        self.b = generator.integers(0, 256, count).astype(np.float32)
        self.out = np.zeros(count, dtype=np.float32)
        self.expected = self.a * np.float32(SCALE) + self.b
        self.bytes = count * 4
        self.device_out, self.device_a, self.device_b = (context.allocate(self.bytes) for _ in range(3))
        arguments, self.alive = kernel_arguments(self.device_out, self.device_a, self.device_b, SCALE)
        threads = min(count, THREADS_PER_BLOCK)
        self.has_answer = not computes_nothing(context.facts.name)
        self.launch_words = (context.kernel(), -(-count // threads), 1, 1, threads, 1, 1, 0, 0, arguments, 0)

    def check(self) -> None:
        if self.has_answer:
            _require_equal(self.out, self.expected, "a * 3 + b of the kernel")


def _launch(context: DriverContext, seed: int) -> tuple[Run, list[Any]]:
    kernel = _Kernel(context, LAUNCH_THREADS, seed)
    context.call("cuMemcpyHtoD", kernel.device_a, int(kernel.a.ctypes.data), kernel.bytes)
    context.call("cuMemcpyHtoD", kernel.device_b, int(kernel.b.ctypes.data), kernel.bytes)
    launch, synchronize, failure = context.api.cuLaunchKernel, context.synchronize, context.failure
    words = kernel.launch_words

    def run() -> None:
        (code,) = launch(*words)
        if code:
            raise failure("cuLaunchKernel", code)
        (code,) = synchronize()
        if code:
            raise failure("cuCtxSynchronize", code)

    run()
    context.call("cuMemcpyDtoH", int(kernel.out.ctypes.data), kernel.device_out, kernel.bytes)
    kernel.check()
    return run, [kernel]


class _LaunchesInFlight:
    """Launches of the kernel in one stream, each with an event behind it that says when it is done."""

    def __init__(self, context: DriverContext, kernel: _Kernel, depth: int) -> None:
        self._context, self._words = context, kernel.launch_words
        self._free = deque(context.call("cuEventCreate", EVENTS_WITHOUT_TIME)[0] for _ in range(depth))
        self._waiting: deque[Any] = deque()

    def submit(self, first: int, count: int) -> None:
        """Launch `count` kernels and record an event behind them."""
        event = self._free.popleft()
        for _ in range(count):
            self._context.call("cuLaunchKernel", *self._words)
        self._context.call("cuEventRecord", event, 0)
        self._waiting.append(event)

    def finish(self) -> None:
        """Wait for the oldest event."""
        event = self._waiting.popleft()
        self._context.call("cuEventSynchronize", event)
        self._free.append(event)

    def close(self) -> None:
        """Destroy the events."""
        for event in (*self._free, *self._waiting):
            self._context.call("cuEventDestroy", event)


def call_times(context: DriverContext, seed: int) -> dict[str, float]:
    """Return the time of a kernel by the device's events, and what launch and wait take beyond it."""
    kernel = _Kernel(context, LAUNCH_THREADS, seed)
    (start,), (end,) = context.call("cuEventCreate", 0), context.call("cuEventCreate", 0)
    kernel_times_us, wall_times_us = [], []
    for _ in range(TIMED_LAUNCHES):
        context.call("cuEventRecord", start, 0)
        context.call("cuLaunchKernel", *kernel.launch_words)
        context.call("cuEventRecord", end, 0)
        context.call("cuCtxSynchronize")
        kernel_times_us.append(1e3 * float(context.call("cuEventElapsedTime", start, end)[0]))
        # Again without events, which are calls too.
        begun_ns = time.perf_counter_ns()
        context.call("cuLaunchKernel", *kernel.launch_words)
        context.call("cuCtxSynchronize")
        wall_times_us.append((time.perf_counter_ns() - begun_ns) / 1e3)
    for event in (start, end):
        context.call("cuEventDestroy", event)
    # The lower decile: on a busy host, half of the launches may have lost the CPU in between.
    kernel_us, wall_us = (statistics.quantiles(times, n=10)[0] for times in (kernel_times_us, wall_times_us))
    return {"kernel_us": kernel_us, "calls_us": max(0.0, wall_us - kernel_us)}


def _operation(context: DriverContext, seed: int) -> tuple[Run, list[Any]]:
    kernel = _Kernel(context, FLOATS, seed)
    a, b, out = (int(array.ctypes.data) for array in (kernel.a, kernel.b, kernel.out))
    device_a, device_b, device_out, size = kernel.device_a, kernel.device_b, kernel.device_out, kernel.bytes
    copy_in, copy_out = context.api.cuMemcpyHtoD, context.api.cuMemcpyDtoH
    launch, synchronize, failure = context.api.cuLaunchKernel, context.synchronize, context.failure
    words = kernel.launch_words

    def run() -> None:
        (code,) = copy_in(device_a, a, size)
        if code:
            raise failure("cuMemcpyHtoD", code)
        (code,) = copy_in(device_b, b, size)
        if code:
            raise failure("cuMemcpyHtoD", code)
        (code,) = launch(*words)
        if code:
            raise failure("cuLaunchKernel", code)
        (code,) = synchronize()
        if code:
            raise failure("cuCtxSynchronize", code)
        (code,) = copy_out(out, device_out, size)
        if code:
            raise failure("cuMemcpyDtoH", code)

    run()
    kernel.check()
    return run, [kernel]


def _pattern(size: int, seed: int) -> npt.NDArray[np.uint8]:
    words = np.random.PCG64(seed).random_raw(min(-(-size // 8), 1 << 16)).astype("<u8", copy=False).view(np.uint8)
    return np.resize(words, size)


def _require_equal(got: npt.NDArray[Any], expected: npt.NDArray[Any], what: str) -> None:
    if not np.array_equal(got, expected):
        wrong = int(np.count_nonzero(got != expected))
        raise EngineError(
            f"the device computed a wrong result: {what}: {wrong} of {len(expected)} values differ",
            where="engine driver",
            next_step="this device cannot be measured until it computes correctly",
        )


PROVIDER = "CUDA driver API"


class DriverEngine:
    """Runs one operation of `micro`; one sample is one operation."""

    def __init__(self, request: EngineRequest) -> None:
        if request.workload not in OPERATIONS:
            raise UsageError(
                f"the engine driver runs the workload micro, not {request.workload}", next_step="use --workload micro"
            )
        self._request = request
        self._operation = OPERATIONS[request.workload]
        self._context = DriverContext()
        try:
            name = self._context.facts.name
            self.device = verified_device(request.device, name)
            self._name = name if not request.libcuda else f"{name}, as {request.libcuda} names it"
            self._run, self._alive = operation_run(self._context, self._operation, request.seed)
        except BaseException:
            self._context.close()
            raise
        self._response = NoResponse(request.max_batch)
        self.response_address = self._response.address
        self.response_bytes = self._response.bytes_per_sample

    def facts(self) -> dict[str, Any]:
        """Return which driver and device answered, as they report it."""
        device = self._context.facts
        return {
            "engine": "driver",
            "engine_version": f"cuda-bindings {bindings_version()}",
            "provider": PROVIDER,
            "device_name": self._name,
            "device_memory_mb": device.memory_mb,
            "driver_version": device.driver_version,
            "library": loaded_library(),
            "operation": self._operation.title,
            "bytes_per_run": self._operation.bytes_per_run,
            "host_memory": "pageable",
            "kernel_answers": f"not compared: {NULL_KERNELS}" if computes_nothing(device.name) else "compared",
            "options": dict(self._request.options),
            "threads": 1,
            "precision": "none",
        }

    def call_times(self) -> dict[str, float]:
        """Return how long a kernel takes, and the calls around it."""
        return call_times(self._context, self._request.seed)

    def adapt_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return them unchanged: an operation has its own data."""
        return inputs

    def load_samples(self, samples: Samples) -> None:
        """Need none."""

    def run(self, first: int, count: int) -> None:
        """Do the operation `count` times; each returns when the device is done."""
        run = self._run
        if count == 1:
            run()
            return
        for _ in range(count):
            run()

    def in_flight(self, depth: int) -> InFlight:
        """Return overlapping launches; the other operations wait for the device by their nature."""
        if self._operation.kind != "launch":
            raise UsageError(
                f"{self._request.workload} waits for the device at each run and cannot be kept in flight",
                next_step="use --workload micro:launch, or --in-flight 1",
            )
        kernel: _Kernel = self._alive[0]
        return _LaunchesInFlight(self._context, kernel, depth)

    def close(self) -> None:
        """Release memory and context."""
        self._context.close()


def verified_device(wanted: str, name: str, engine: str = "driver") -> str:
    """Return the device by its name in the driver; a device other than the requested one is an error."""
    found = "software" if name.startswith(SOFTWARE_DEVICE_NAME) else "cuda"
    if wanted in ("software", "cuda") and wanted != found:
        raise PreflightError(
            f"{wanted} was requested, but the driver's device is {name!r}",
            where=f"engine {engine}",
            next_step=f"use --device {found}, or check LD_LIBRARY_PATH and --libcuda",
        )
    if wanted == "cpu":
        raise PreflightError(f"the engine {engine} has no CPU device", next_step="use --device software")
    return found
