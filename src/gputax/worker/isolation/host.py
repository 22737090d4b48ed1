"""Isolation between processes of one machine, for the stand-ins without a GPU, whose device is the processor."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from gputax.worker.isolation.walls import SECRET_REPEATS, attempt
from gputax.worker.probes.cgroups import hierarchies
from gputax.worker.probes.files import read_int

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
        told = {"told_bytes": limit, "source": source}
        return {**told, **_filled_by_a_child(most_bytes)} if most_bytes else told

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
