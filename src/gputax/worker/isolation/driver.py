"""Isolation of device memory, tested through the CUDA driver API."""

from __future__ import annotations

from typing import Any

import numpy as np

from gputax.errors import EngineError
from gputax.worker.engines.driver_context import DriverContext, kernel_arguments
from gputax.worker.isolation.walls import SECRET_REPEATS, attempt

LARGEST_BLOCK, SMALLEST_BLOCK = 1 << 30, 1 << 20
SEARCHED_BLOCK, SEARCHED_BLOCKS = 16 << 20, 8
KERNEL_FLOATS = 1024


class DriverWalls:
    """Memory that a tenant of the driver can allocate, and memory of others that it can reach."""

    def __init__(self) -> None:
        self._context = DriverContext()
        self._held: list[tuple[Any, int]] = []

    def fill(self, most_bytes: int) -> dict[str, Any]:
        """Allocate ever smaller blocks until even the smallest fails; the allocations are kept."""
        free, total = self._context.call("cuMemGetInfo")
        taken, block, refusal = 0, LARGEST_BLOCK, ""
        while block >= SMALLEST_BLOCK and (not most_bytes or taken < most_bytes):
            code, pointer = self._context.api.cuMemAlloc(block)
            if code:
                refusal = str(getattr(code, "name", int(code)))
                block //= 2
                continue
            self._held.append((pointer, block))
            taken += block
        return {
            "taken_bytes": taken,
            "told_bytes": int(total),
            "told_free_bytes": int(free),
            "refusal": refusal,
            "out_of_memory": refusal.endswith("OUT_OF_MEMORY"),
        }

    def hold(self, secret: bytes) -> dict[str, Any]:
        """Write the secret many times over into our own memory."""
        data = np.frombuffer(secret * SECRET_REPEATS, dtype=np.uint8)
        pointer = self._context.allocate(data.nbytes)
        self._context.call("cuMemcpyHtoD", pointer, int(data.ctypes.data), data.nbytes)
        self._context.call("cuCtxSynchronize")
        self._secret_at = (pointer, data.nbytes)
        return {"address": int(pointer), "bytes": data.nbytes}

    def check(self, secret: bytes) -> dict[str, Any]:
        """Read our own secret back."""
        pointer, size = self._secret_at
        return {"there": self._read(pointer, size) == secret * SECRET_REPEATS}

    def read(self, secret: bytes, place: dict[str, Any]) -> dict[str, Any]:
        """Search fresh memory; then copy from the other's address, and finally let a kernel read there."""
        attempts = [self._fresh(secret)]
        if place:
            attempts += [self._copy(secret, place), self._kernel(secret, place)]
        return {"attempts": attempts}

    def drop(self) -> None:
        """Free everything that `fill` allocated."""
        for pointer, _ in self._held:
            self._context.call("cuMemFree", pointer)
        self._held.clear()

    def _fresh(self, secret: bytes) -> dict[str, Any]:
        blocks: list[Any] = []
        found = False
        try:
            for _ in range(SEARCHED_BLOCKS):
                code, pointer = self._context.api.cuMemAlloc(SEARCHED_BLOCK)
                if code:
                    break
                blocks.append(pointer)
                found = found or secret in self._read(pointer, SEARCHED_BLOCK)
        finally:
            for pointer in blocks:
                self._context.call("cuMemFree", pointer)
        megabytes = len(blocks) * SEARCHED_BLOCK >> 20
        return attempt("memory freshly allocated", f"{megabytes} MiB searched", found=found)

    def _copy(self, secret: bytes, place: dict[str, Any]) -> dict[str, Any]:
        way = "a copy from the other's address"
        size = int(place["bytes"])
        try:
            data = self._read(self._context.api.CUdeviceptr(int(place["address"])), size)
        except EngineError as error:
            return attempt(way, f"refused: {error.what}", found=False)
        return attempt(way, f"{size} bytes were given", found=secret in data)

    def _kernel(self, secret: bytes, place: dict[str, Any]) -> dict[str, Any]:
        """Add the other's floats to zeros: whatever a kernel can load is copied unchanged, except for NaNs."""
        way = "a kernel that reads at the other's address"
        context, size = self._context, KERNEL_FLOATS * 4
        out, zeros = context.allocate(size), context.allocate(size)
        context.call("cuMemsetD8", zeros, 0, size)
        foreign = context.api.CUdeviceptr(int(place["address"]))
        arguments, alive = kernel_arguments(out, foreign, zeros, 1.0)
        try:
            context.call("cuLaunchKernel", context.kernel(), KERNEL_FLOATS // 256, 1, 1, 256, 1, 1, 0, 0, arguments, 0)
            context.call("cuCtxSynchronize")
            data = self._read(out, size)
        except EngineError as error:
            return attempt(way, f"refused: {error.what}", found=False)
        finally:
            del alive
        return attempt(way, f"{size} bytes were given", found=secret in data)

    def _read(self, pointer: Any, size: int) -> bytes:
        back = np.zeros(size, dtype=np.uint8)
        self._context.call("cuMemcpyDtoH", int(back.ctypes.data), pointer, size)
        return back.tobytes()
