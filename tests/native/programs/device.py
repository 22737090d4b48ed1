"""NVIDIA's cuda-bindings with errors as exceptions: what the programs here have in common."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
from cuda.bindings import driver

KERNELS = Path(__file__).parents[3] / "native" / "kernels"
Array = np.ndarray[Any, Any]


class CudaError(Exception):
    """A CUDA call that failed; `code` is the CUresult."""

    def __init__(self, code: driver.CUresult) -> None:
        super().__init__(code.name)
        self.code = code


def check(answer: tuple[Any, ...]) -> Any:
    """Give the value of a call, or raise its error."""
    code, *values = answer
    if code != driver.CUresult.CUDA_SUCCESS:
        raise CudaError(code)
    return None if not values else values[0] if len(values) == 1 else tuple(values)


def error_of(answer: tuple[Any, ...]) -> str:
    """Name the result of a call."""
    return str(answer[0].name)


def start(flags: int = 0) -> Any:
    """Initialise, and make a context current."""
    check(driver.cuInit(0))
    return check(driver.cuCtxCreate(None, flags, check(driver.cuDeviceGet(0))))


def device_name() -> str:
    """Name of device 0."""
    return str(check(driver.cuDeviceGetName(128, check(driver.cuDeviceGet(0)))).split(b"\0")[0].decode())


class Module:
    """PTX text, loaded."""

    def __init__(self, ptx: str | bytes) -> None:
        text = ptx.encode() if isinstance(ptx, str) else ptx
        self.handle = check(driver.cuModuleLoadData(text + b"\0"))

    def kernel(self, name: str) -> Any:
        """Handle of a kernel."""
        return check(driver.cuModuleGetFunction(self.handle, name.encode()))


def load(name: str, folder: Path = KERNELS) -> Module:
    """One of the project's kernels' files."""
    return Module((folder / f"{name}.ptx").read_bytes())


class Buffer:
    """Device memory with an array's shape and type."""

    def __init__(self, array: Array) -> None:
        self.array = np.ascontiguousarray(array)
        self.pointer = int(check(driver.cuMemAlloc(self.array.nbytes)))
        check(driver.cuMemcpyHtoD(self.pointer, self.array.ctypes.data, self.array.nbytes))

    def read(self) -> Array:
        """What is in it now."""
        out = np.empty_like(self.array)
        check(driver.cuMemcpyDtoH(out.ctypes.data, self.pointer, out.nbytes))
        return out

    def free(self) -> None:
        """Give the memory back."""
        check(driver.cuMemFree(self.pointer))


def launch(
    kernel: Any, grid: tuple[int, ...], block: tuple[int, ...], *parameters: Any, shared: int = 0, stream: Any = 0
) -> None:
    """Launch; buffers go as pointers, ctypes values as they are, plain ints as int32, floats as float32."""
    values: list[Any] = []
    types: list[Any] = []
    for parameter in parameters:
        if isinstance(parameter, Buffer):
            values.append(parameter.pointer)
            types.append(ctypes.c_uint64)
        elif isinstance(parameter, int | float):
            values.append(parameter)
            types.append(ctypes.c_int32 if isinstance(parameter, int) else ctypes.c_float)
        else:
            values.append(parameter.value)
            types.append(type(parameter))
    grid, block = (*grid, 1, 1)[:3], (*block, 1, 1)[:3]
    check(driver.cuLaunchKernel(kernel, *grid, *block, shared, stream, (tuple(values), tuple(types)), 0))
