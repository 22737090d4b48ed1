"""What the test programs share: cuda-bindings with errors raised, and kernels of native/kernels."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import numpy as np
from cuda.bindings import driver

KERNELS = Path(__file__).parents[3] / "native" / "kernels"


class CudaError(Exception):
    pass


def name_of(result: Any) -> str:
    return str(driver.CUresult(int(result)).name)


def ok(answer: tuple[Any, ...]) -> Any:
    """The values of an answer; an error is raised with its name."""
    if int(answer[0]) != 0:
        raise CudaError(name_of(answer[0]))
    return answer[1] if len(answer) == 2 else answer[1:]


def error(answer: tuple[Any, ...]) -> str:
    """The name of an answer's result."""
    return name_of(answer[0])


def begin() -> Any:
    """A context on device 0."""
    ok(driver.cuInit(0))
    return ok(driver.cuCtxCreate(None, 0, ok(driver.cuDeviceGet(0))))


def image(name: str) -> bytes:
    return (KERNELS / f"{name}.ptx").read_bytes() + b"\0"


def module(name: str) -> Any:
    return ok(driver.cuModuleLoadData(image(name)))


def function(loaded: Any, name: str) -> Any:
    return ok(driver.cuModuleGetFunction(loaded, name.encode()))


def to_device(array: np.ndarray[Any, Any]) -> Any:
    pointer = ok(driver.cuMemAlloc(array.nbytes))
    ok(driver.cuMemcpyHtoD(pointer, array.ctypes.data, array.nbytes))
    return pointer


def from_device(pointer: Any, like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    back = np.empty_like(like)
    ok(driver.cuMemcpyDtoH(back.ctypes.data, pointer, back.nbytes))
    return back


def launch(kernel: Any, grid: tuple[int, ...], block: tuple[int, ...], values: tuple[Any, ...], **more: Any) -> None:
    """Arguments are device pointers, or (value, ctypes type)."""
    grid, block = (*grid, 1, 1)[:3], (*block, 1, 1)[:3]
    plain = tuple(v[0] if isinstance(v, tuple) else v for v in values)
    types = tuple(v[1] if isinstance(v, tuple) else None for v in values)
    packed = (plain, types) if values else 0
    ok(driver.cuLaunchKernel(kernel, *grid, *block, more.get("shared", 0), more.get("stream", 0), packed, 0))


def describe() -> dict[str, Any]:
    """libvgpu's own account of what it sent."""
    library = ctypes.CDLL("libcuda.so.1")
    text = ctypes.create_string_buffer(1 << 16)
    assert library.gputax_vgpu_describe(text, ctypes.c_size_t(len(text))) > 0
    account: dict[str, Any] = json.loads(text.value)
    return account
