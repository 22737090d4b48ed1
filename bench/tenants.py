"""Tenants of a GPU proxy as forked processes on libvgpu's driver API: cheap enough to start them by the thousand."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from pathlib import Path

SYSTEM_NOT_READY = 802  # the tenant's worker, or the broker, has gone
ENDED_WELL, LOST_WORKER, CALL_FAILED, WRONG_ANSWER, BROKEN = 0, 10, 11, 12, 13
PR_SET_PDEATHSIG = 1
THREADS = 256


class CallError(Exception):
    """A driver call that did not succeed."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call}: CUDA error {code}")
        self.code = code


class WrongAnswerError(Exception):
    """The device gave back other bytes than it was given."""


class Tenant:
    """One connection with one context; made after the fork, in the process that uses it."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)

    def call(self, name: str, *arguments: object) -> None:
        """Call the driver; anything but success raises."""
        code: int = getattr(self._library, name)(*arguments)
        if code:
            raise CallError(name, code)

    def allocate(self, size: int) -> ctypes.c_uint64:
        """Return device memory."""
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer

    def free(self, pointer: ctypes.c_uint64) -> None:
        """Give device memory back."""
        self.call("cuMemFree_v2", pointer)

    def load(self, image: bytes) -> ctypes.c_void_p:
        """Return the module of a PTX text."""
        module = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), image + b"\0")
        return module

    def kernel(self, image: bytes, name: str) -> ctypes.c_void_p:
        """Return a kernel of a PTX text."""
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), self.load(image), name.encode())
        return function

    def launch(self, kernel: ctypes.c_void_p, *parameters: ctypes.c_uint64 | ctypes.c_float, blocks: int = 1) -> None:
        """Post a launch of one-dimensional blocks."""
        addresses = (ctypes.c_void_p * max(1, len(parameters)))(
            *(ctypes.cast(ctypes.byref(each), ctypes.c_void_p) for each in parameters)
        )
        shape = (blocks, 1, 1, THREADS, 1, 1, 0)
        self.call("cuLaunchKernel", kernel, *map(ctypes.c_uint, shape), None, addresses, None)

    def synchronise(self) -> None:
        """Wait for the device."""
        self.call("cuCtxSynchronize")

    def check(self, seed: int, size: int) -> None:
        """Send bytes to the device and read them back."""
        sent = (seed.to_bytes(8, "little") * (size // 8 + 1))[:size]
        found = ctypes.create_string_buffer(size)
        pointer = self.allocate(size)
        self.call("cuMemcpyHtoD_v2", pointer, sent, ctypes.c_size_t(size))
        self.call("cuMemcpyDtoH_v2", found, pointer, ctypes.c_size_t(size))
        self.free(pointer)
        if found.raw != sent:
            raise WrongAnswerError


def open_driver(library: Path) -> ctypes.CDLL:
    """Load libvgpu; it connects in the first call, which belongs behind the fork."""
    return ctypes.CDLL(str(library))


def fork_tenant(work: Callable[[], None]) -> int:
    """Run the work in a process of its own and return its number; its exit code says how it ended."""
    child = os.fork()
    if child:
        return child
    code = BROKEN
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        work()
        code = ENDED_WELL
    except CallError as error:
        code = LOST_WORKER if error.code == SYSTEM_NOT_READY else CALL_FAILED
    except WrongAnswerError:
        code = WRONG_ANSWER
    finally:
        os._exit(code)
