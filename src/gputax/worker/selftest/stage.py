"""The driver of this process by its exported names, and what the programs of the self-test do with it."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gputax.worker.probes.driver_library import SONAME

Array = npt.NDArray[Any]
Question = tuple[str, Callable[[], Any]]
Questions = Iterator[Question]
"""Named questions, asked one after the other: each returns an answer that JSON can carry."""
NOT_EXPORTED = -1
SUCCESS, INVALID_VALUE, NOT_SUPPORTED = 0, 1, 801
NAME_BYTES = 256


class RefusedError(Exception):
    """A call that a program needs did not succeed."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"{name}: {'not exported' if code == NOT_EXPORTED else f'CUDA error {code}'}")
        self.code = code


class WrongError(Exception):
    """A program got another answer than the known one."""


def hold(condition: bool, what: str) -> None:
    """Raise if a known answer is wrong."""
    if not condition:
        raise WrongError(what)


def digest(*arrays: Array) -> str:
    """Return what stands for these bytes in a document."""
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:16]


class Driver:
    """Calls by name, as the loader finds them; an integer travels as 64 bits, which serve for any smaller one."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(SONAME)

    def code(self, name: str, *arguments: Any) -> int:
        """Return the result code of a call."""
        function = getattr(self._library, name, None)
        return NOT_EXPORTED if function is None else int(function(*map(_argument, arguments)))

    def __call__(self, name: str, *arguments: Any) -> None:
        """Call; anything but success is raised."""
        code = self.code(name, *arguments)
        if code:
            raise RefusedError(name, code)

    def asked(self, name: str, *arguments: Any, kind: Any = ctypes.c_int) -> list[int | None]:
        """Return the code, and after success the value that the call writes to its first argument."""
        value = kind()
        code = self.code(name, ctypes.byref(value), *arguments)
        return [code, None if code else value.value or 0]

    def made(self, name: str, *arguments: Any, kind: Any = ctypes.c_uint64) -> int:
        """Return what the call writes to its first argument; anything but success is raised."""
        value = kind()
        self(name, ctypes.byref(value), *arguments)
        return int(value.value or 0)


def _argument(value: Any) -> Any:
    return ctypes.c_uint64(value & 0xFFFFFFFFFFFFFFFF) if isinstance(value, int) else value


class Stage:
    """A current context, the images of the kernels, and the arrays of a seeded generator."""

    def __init__(self, images: Mapping[str, bytes], *, with_context: bool = True) -> None:
        self.images = images
        self.driver = Driver()
        self.random = np.random.default_rng(7)
        self.driver("cuInit", 0)
        self.device = self.driver.made("cuDeviceGet", 0, kind=ctypes.c_int)
        self.context = 0
        if with_context:
            self.context = self.driver.made("cuDevicePrimaryCtxRetain", self.device)
            self.driver("cuCtxSetCurrent", self.context)

    def name(self) -> str:
        """Return the device's own name."""
        text = ctypes.create_string_buffer(NAME_BYTES)
        self.driver("cuDeviceGetName", text, NAME_BYTES, self.device)
        return text.value.decode(errors="replace")

    def module(self, name: str) -> int:
        """Load an image."""
        return self.driver.made("cuModuleLoadData", self.images[name] + b"\0")

    def function(self, module: int, name: str) -> int:
        """Return a kernel of a module."""
        return self.driver.made("cuModuleGetFunction", module, name.encode())

    def kernel(self, image: str, name: str) -> int:
        """Load an image and return one of its kernels."""
        return self.function(self.module(image), name)

    def room(self, size: int) -> int:
        """Return device memory."""
        return self.driver.made("cuMemAlloc_v2", size)

    def to_device(self, array: Array) -> int:
        """Return device memory with these values."""
        pointer = self.room(array.nbytes)
        self.driver("cuMemcpyHtoD_v2", pointer, array.ctypes.data, array.nbytes)
        return pointer

    def from_device(self, pointer: int, like: Array) -> Array:
        """Return the values there."""
        back = np.empty_like(like)
        self.driver("cuMemcpyDtoH_v2", back.ctypes.data, pointer, back.nbytes)
        return back

    def free(self, *pointers: int) -> None:
        """Give device memory back."""
        for pointer in pointers:
            self.driver("cuMemFree_v2", pointer)

    def floats(self, count: int) -> Array:
        """Return random numbers; the same in every process."""
        return self.random.standard_normal(count, dtype=np.float32)

    def launch(
        self, kernel: int, grid: tuple[int, ...], block: tuple[int, ...], *values: Any, shared: int = 0, stream: int = 0
    ) -> int:
        """Launch with device addresses (int) or ctypes values, and return the code."""
        shape = (*three(grid), *three(block), shared)
        arguments, _kept = packed(values)
        return self.driver.code("cuLaunchKernel", kernel, *shape, stream, arguments, None)

    def run(self, kernel: int, grid: tuple[int, ...], block: tuple[int, ...], *values: Any, **more: int) -> None:
        """Launch; anything but success is raised."""
        code = self.launch(kernel, grid, block, *values, **more)
        if code:
            raise RefusedError("cuLaunchKernel", code)

    def seen(self, name: str, *arguments: Any) -> int:
        """Return the first code that is not success: of the call, or, where calls are posted, of a wait behind it."""
        return self.driver.code(name, *arguments) or self.driver.code("cuCtxSynchronize")

    def wait(self) -> None:
        """Wait for the device; what went wrong before is raised here."""
        self.driver("cuCtxSynchronize")


def three(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return a shape with all of its dimensions."""
    x, y, z = (*shape, 1, 1)[:3]
    return x, y, z


def packed(values: tuple[Any, ...]) -> tuple[Any, list[Any]]:
    """Return the list of addresses that a launch takes, and the values, which must live as long."""
    kept = [ctypes.c_uint64(value) if isinstance(value, int) else value for value in values]
    array = (ctypes.c_void_p * max(1, len(kept)))(*(ctypes.addressof(value) for value in kept))
    return array, kept
