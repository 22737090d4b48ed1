"""Probe the isolation between tenants from inside one: each probe is one request and only reports what happened.

Nothing is judged here. A probe is `fill` (allocate until refused), `hold` (keep a secret in the device's memory),
`check` (is the secret still there, as a control), `read` (look for another tenant's secret) or `drop`.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gputax.errors import EngineError, WorkerError
from gputax.worker.engines.driver_context import DriverContext, kernel_arguments
from gputax.worker.probes.files import read_int
from gputax.worker.probes.limits import hierarchies

SECRET_REPEATS = 4096


class Walls(Protocol):
    """The memory of one kind of device, as a tenant can reach it."""

    def fill(self, most_bytes: int) -> dict[str, Any]:
        """Allocate until refused or until this much is held; return the amount and the refusal."""
        ...

    def hold(self, secret: bytes) -> dict[str, Any]:
        """Keep a secret and return its location."""
        ...

    def check(self, secret: bytes) -> dict[str, Any]:
        """Return whether the owner can still read its secret."""
        ...

    def read(self, secret: bytes, place: dict[str, Any]) -> dict[str, Any]:
        """Try every way to read another tenant's secret at that location; return each attempt."""
        ...

    def drop(self) -> None:
        """Release everything that is held."""
        ...


_walls: dict[str, Walls] = {}
"""State of this process between two requests, by kind of device."""


def probe(request: dict[str, Any]) -> dict[str, Any]:
    """Answer one `describe about=isolation`."""
    family, what = str(request.get("family", "cpu")), str(request.get("probe"))
    secret = bytes.fromhex(str(request.get("secret", "")))
    if family not in _walls:
        _walls[family] = DriverWalls() if family == "driver" else HostWalls()
    walls = _walls[family]
    match what:
        case "fill":
            return walls.fill(int(request.get("most_bytes", 0)))
        case "hold":
            return walls.hold(secret)
        case "check":
            return walls.check(secret)
        case "read":
            return walls.read(secret, dict(request.get("place") or {}))
        case "drop":
            walls.drop()
            return {}
    raise WorkerError(f"unknown isolation probe {what!r}", where="worker protocol")


def attempt(way: str, outcome: str, *, found: bool) -> dict[str, Any]:
    """Return one attempt to read foreign memory: the way, the outcome, and whether the secret was found."""
    return {"way": way, "outcome": outcome, "found": found}


SEARCHED_BYTES = 64 << 20
STEP_BYTES = 4 << 20
NO_LIMIT = 1 << 60  # cgroup v1 writes "no limit" as the largest page-aligned int64
# Writes one byte for each step that it has actually touched.
TAKE_MEMORY = """
import mmap, os, sys
step, most = map(int, sys.argv[1:])
with open("/proc/self/oom_score_adj", "w") as first_to_end:
    first_to_end.write("1000")
held = []
for _ in range(most):
    held.append(mmap.mmap(-1, step))
    held[-1].write(bytes([1]) * step)
    os.write(1, b".")
"""
LIMIT_FILES = {1: "memory.limit_in_bytes", 2: "memory.max"}


class _Span(ctypes.Structure):
    _fields_ = (("address", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


class HostWalls:
    """Machine memory that a tenant can allocate, and memory of other processes that it can reach."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._secret: ctypes.Array[ctypes.c_char] | None = None

    def fill(self, most_bytes: int) -> dict[str, Any]:
        """Return the limit of our cgroup and, with `most_bytes`, let a child allocate until the kernel kills it."""
        limit, source = memory_limit(self._root)
        limits = {"limit_bytes": limit, "source": source}
        return {**limits, **_filled_by_a_child(most_bytes)} if most_bytes else limits

    def hold(self, secret: bytes) -> dict[str, Any]:
        """Keep the secret in this process's memory."""
        self._secret = ctypes.create_string_buffer(secret * SECRET_REPEATS, len(secret) * SECRET_REPEATS)
        return {"address": ctypes.addressof(self._secret), "bytes": len(self._secret), "pid": os.getpid()}

    def check(self, secret: bytes) -> dict[str, Any]:
        """Read our own secret back."""
        return {"there": self._secret is not None and self._secret.raw == secret * SECRET_REPEATS}

    def read(self, secret: bytes, place: dict[str, Any]) -> dict[str, Any]:
        """Search fresh memory; then read the other process through Linux's two debugging interfaces."""
        attempts = [_fresh(secret)]
        if place:
            pid, address, size = int(place["pid"]), int(place["address"]), int(place["bytes"])
            attempts += [_by_system_call(secret, pid, address, size), _by_file(secret, pid, address, size)]
        return {"attempts": attempts, "uid": os.getuid()}

    def drop(self) -> None:
        """Forget the secret."""
        self._secret = None


def memory_limit(root: Path = Path("/")) -> tuple[int | None, str]:
    """Return the tightest memory limit of this process's cgroups and its file; None without one."""
    found: list[tuple[int, str]] = []
    for hierarchy in hierarchies("memory", root):
        for level in hierarchy.levels:
            path = level / LIMIT_FILES[hierarchy.version]
            limit = read_int(path)
            if limit is not None and limit < NO_LIMIT:
                found.append((limit, str(path)))
    return min(found, default=(None, ""))


def _filled_by_a_child(most_bytes: int) -> dict[str, Any]:
    """Let a child touch memory step by step: at the limit the kernel kills the child instead of the worker."""
    words = [sys.executable, "-c", TAKE_MEMORY, str(STEP_BYTES), str(most_bytes // STEP_BYTES)]
    done = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL)
    killed, refused = done.returncode == -signal.SIGKILL, b"MemoryError" in done.stderr or b"OSError" in done.stderr
    refusal = "ended by the kernel (SIGKILL)" if killed else "refused by mmap" if refused else ""
    return {"taken_bytes": len(done.stdout) * STEP_BYTES, "refusal": refusal, "out_of_memory": bool(refusal)}


def _fresh(secret: bytes) -> dict[str, Any]:
    with mmap.mmap(-1, SEARCHED_BYTES) as fresh:
        found = fresh.find(secret) >= 0
    return attempt("memory freshly allocated", f"{SEARCHED_BYTES >> 20} MiB searched", found=found)


def _by_system_call(secret: bytes, pid: int, address: int, size: int) -> dict[str, Any]:
    way = "the system call process_vm_readv"
    buffer = ctypes.create_string_buffer(size)
    here, there = _Span(ctypes.addressof(buffer), size), _Span(address, size)
    read = ctypes.CDLL(None, use_errno=True).process_vm_readv
    read.restype = ctypes.c_ssize_t
    count = read(pid, ctypes.byref(here), ctypes.c_ulong(1), ctypes.byref(there), ctypes.c_ulong(1), ctypes.c_ulong(0))
    if count < 0:
        return attempt(way, f"refused: {os.strerror(ctypes.get_errno())}", found=False)
    return attempt(way, f"{count} bytes were given", found=secret in buffer.raw)


def _by_file(secret: bytes, pid: int, address: int, size: int) -> dict[str, Any]:
    way = "the file /proc/PID/mem"
    try:
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
            memory.seek(address)
            data = memory.read(size)
    except (OSError, OverflowError) as error:
        return attempt(way, f"refused: {getattr(error, 'strerror', None) or error}", found=False)
    return attempt(way, f"{len(data)} bytes were given", found=secret in data)


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
            "limit_bytes": int(total),
            "free_bytes": int(free),
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
