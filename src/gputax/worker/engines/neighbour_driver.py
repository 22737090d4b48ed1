"""Neighbours behind the CUDA driver API, on a GPU or on the software device: the same calls on both."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gputax.errors import EngineError
from gputax.plan.workloads import OPERATIONS, MicroOperation
from gputax.worker.engines.driver import PROVIDER, operation_run, verified_device
from gputax.worker.engines.driver_context import DriverContext
from gputax.worker.engines.neighbour import Work, crashing

Run = Callable[[], None]
COPY_BYTES = 100_000_000
# Beyond the second-level cache of any current GPU.
BUFFER_BYTES = 256 << 20
# A tenant with a small quota must still fit: no buffer takes more than a quarter of the free memory.
PART_OF_FREE = 4
THREADS, BLOCKS_PER_MULTIPROCESSOR = 256, 8
KERNEL_S, MOST_ROUNDS = 0.001, 1 << 20
NOBODYS_ADDRESS = 0x10
PTX = b"""
.version 7.0
.target sm_52
.address_size 64
.visible .entry rounds(.param .u64 out, .param .u32 count, .param .f32 scale)
{
	.reg .pred %p<3>;
	.reg .f32 %f<3>;
	.reg .b32 %r<7>;
	.reg .b64 %rd<5>;
	ld.param.u64 %rd1, [out];
	ld.param.u32 %r1, [count];
	ld.param.f32 %f1, [scale];
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ntid.x;
	mov.u32 %r4, %tid.x;
	mad.lo.s32 %r5, %r2, %r3, %r4;
	cvt.rn.f32.u32 %f2, %r4;
	mov.u32 %r6, 0;
again:
	setp.ge.u32 %p1, %r6, %r1;
	@%p1 bra done;
	fma.rn.f32 %f2, %f2, %f1, 0f3F800000;
	add.u32 %r6, %r6, 1;
	bra again;
done:
	cvta.to.global.u64 %rd2, %rd1;
	mul.wide.u32 %rd3, %r5, 4;
	add.s64 %rd4, %rd2, %rd3;
	st.global.f32 [%rd4], %f2;
	ret;
}
"""


class RoundsKernel:
    """Threads that add 1 to their number `rounds` times by multiply-adds: pure computing, with a known result."""

    def __init__(self, context: DriverContext) -> None:
        self._context = context
        self._text = np.frombuffer(PTX + b"\0", dtype=np.uint8)
        (self._module,) = context.call("cuModuleLoadData", self._text.ctypes.data)
        (self._function,) = context.call("cuModuleGetFunction", self._module, b"rounds")
        (device,) = context.call("cuCtxGetDevice")
        attribute = context.api.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        (multiprocessors,) = context.call("cuDeviceGetAttribute", attribute, device)
        self.blocks = BLOCKS_PER_MULTIPROCESSOR * max(1, int(multiprocessors))
        self._out = context.allocate(self.blocks * THREADS * 4)
        self.rounds = 1

    def fit(self) -> None:
        """Double the rounds until one launch takes a millisecond; then check its result."""
        while True:
            started = time.perf_counter()
            self.launch(self._out)
            if time.perf_counter() - started >= KERNEL_S or self.rounds >= MOST_ROUNDS:
                break
            self.rounds *= 2
        back = np.zeros(self.blocks * THREADS, dtype=np.float32)
        self._context.call("cuMemcpyDtoH", int(back.ctypes.data), self._out, back.nbytes)
        expected = np.tile(np.arange(THREADS, dtype=np.float32) + np.float32(self.rounds), self.blocks)
        if not np.array_equal(back, expected):
            raise EngineError("the device computed a wrong result: rounds of multiply-adds", where="engine neighbour")

    def run(self) -> None:
        """Launch it once and wait for it."""
        self.launch(self._out)

    def launch(self, out: Any) -> None:
        """Launch it with this address for its results and wait for it."""
        arguments, alive = _arguments(out, self.rounds)
        words = (self._function, self.blocks, 1, 1, THREADS, 1, 1, 0, 0, arguments, 0)
        self._context.call("cuLaunchKernel", *words)
        self._context.call("cuCtxSynchronize")
        del alive

    def close(self) -> None:
        """Unload the module."""
        self._context.call("cuModuleUnload", self._module)


def driver_work(kind: str, device: str, seed: int, crash_after_ms: int) -> Work:
    """Return the work of one kind on the device behind this process's driver."""
    context = DriverContext()
    try:
        found = verified_device(device, context.facts.name)
        facts = {"provider": PROVIDER, "threads": 1, "device_name": context.facts.name}
        match kind:
            case "memory":
                run, close, sizes = _memory(context)
            case "copies":
                run, close, sizes = _copies(context, seed)
            case "launches":
                launch, alive = operation_run(context, OPERATIONS["micro:launch"], seed)
                run, close, sizes = launch, alive.clear, {}
            case _:
                run, close, sizes = _compute(context, crash_after_ms if kind == "crash" else 0)
    except BaseException:
        context.close()
        raise

    def close_all() -> None:
        close()
        context.close()

    return Work(run, close_all, found, {**facts, **sizes})


def _compute(context: DriverContext, crash_after_ms: int) -> tuple[Run, Run, dict[str, Any]]:
    kernel = RoundsKernel(context)
    kernel.fit()
    sizes = {"threads_per_launch": kernel.blocks * THREADS, "rounds": kernel.rounds}
    if not crash_after_ms:
        return kernel.run, kernel.close, sizes

    def crash() -> None:
        with contextlib.suppress(EngineError):  # expected; the driver now frees our memory
            kernel.launch(context.api.CUdeviceptr(NOBODYS_ADDRESS))
        os.kill(os.getpid(), signal.SIGKILL)

    return crashing(kernel.run, crash_after_ms * 1_000_000, crash), kernel.close, sizes


def _memory(context: DriverContext) -> tuple[Run, Run, dict[str, Any]]:
    size = min(BUFFER_BYTES, _free_bytes(context) // PART_OF_FREE)
    one, other = context.allocate(size), context.allocate(size)
    allocate, alive = operation_run(context, OPERATIONS["micro:allocate"], 0)

    def run() -> None:
        allocate()
        context.call("cuMemcpyDtoD", other, one, size)
        context.call("cuMemsetD8", one, 1, size)
        context.call("cuCtxSynchronize")

    return run, alive.clear, {"buffer_bytes": 2 * size}


def _copies(context: DriverContext, seed: int) -> tuple[Run, Run, dict[str, Any]]:
    size = min(COPY_BYTES, _free_bytes(context) // PART_OF_FREE)
    copy_in, host = operation_run(context, MicroOperation("neighbour:copies", "copy-in", "", size), seed)
    copy_out, back = operation_run(context, MicroOperation("neighbour:copies", "copy-out", "", size), seed)
    alive = [*host, *back]

    def run() -> None:
        copy_in()
        copy_out()

    return run, alive.clear, {"bytes_per_run": 2 * size}


def _free_bytes(context: DriverContext) -> int:
    free, _total = context.call("cuMemGetInfo")
    return int(free)


def _arguments(out: Any, rounds: int) -> tuple[int, tuple[npt.NDArray[Any], ...]]:
    values: list[npt.NDArray[Any]] = [
        np.array([int(out)], dtype=np.uint64),
        np.array([rounds], dtype=np.uint32),
        np.array([1.0], dtype=np.float32),
    ]
    addresses = np.array([value.ctypes.data for value in values], dtype=np.uint64)
    return int(addresses.ctypes.data), (addresses, *values)
