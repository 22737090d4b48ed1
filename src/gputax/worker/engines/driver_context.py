"""A context on the device behind whatever `libcuda.so.1` was found, through NVIDIA's cuda-bindings."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gputax.errors import EngineError, PreflightError
from gputax.worker.probes.driver_library import NAME_BYTES, DeviceFacts, version_text

KERNEL_FILE = Path(__file__).resolve().parent.parent / "workloads" / "micro.ptx"
KERNEL_NAME = b"touch"
NO_LIBRARY = "run gputax doctor; or use --device software (built by `make native`), or --libcuda PATH"
Call = Callable[..., tuple[Any, ...]]


def import_driver() -> Any:
    """Import cuda-bindings, or raise with how to install it."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise PreflightError(
            f"cuda-bindings cannot be imported: {error}", next_step="pip install cuda-bindings"
        ) from error
    return driver


def bindings_version() -> str:
    """Return the version of cuda-bindings."""
    return importlib.metadata.version("cuda-bindings")


class DriverContext:
    """The first device's primary context, its buffers and the kernel; all released by `close`."""

    def __init__(self) -> None:
        self.api = import_driver()
        self._pointers: list[Any] = []
        self._module: Any = None
        self._device: Any = None
        self.facts = self._open()

    def _open(self) -> DeviceFacts:
        api = self.api
        try:
            self.call("cuInit", 0)
            (self._device,) = self.call("cuDeviceGet", 0)
            (context,) = self.call("cuDevicePrimaryCtxRetain", self._device)
        except EngineError as error:
            raise PreflightError(f"the driver has no device: {error.what}", next_step=NO_LIBRARY) from error
        # cuda-bindings raises its own kinds if no library can be loaded, and they change with its versions.
        except Exception as error:
            raise PreflightError(f"no libcuda.so.1 can be used here: {error}", next_step=NO_LIBRARY) from error
        self.call("cuCtxSetCurrent", context)
        (name,) = self.call("cuDeviceGetName", NAME_BYTES, self._device)
        (memory,) = self.call("cuDeviceTotalMem", self._device)
        (version,) = self.call("cuDriverGetVersion")
        self.synchronize: Call = api.cuCtxSynchronize
        return DeviceFacts(
            name.split(b"\0")[0].decode(errors="replace"),
            int(memory) / (1 << 20),
            version_text(int(version)),
        )

    def call(self, name: str, *arguments: Any) -> tuple[Any, ...]:
        """Call the driver and return what follows the result code; anything but success is an error."""
        code, *values = getattr(self.api, name)(*arguments)
        if code:
            raise self.failure(name, code)
        return tuple(values)

    def failure(self, name: str, code: Any) -> EngineError:
        """Return the error for a result code, by the driver's own name for it."""
        shown = getattr(code, "name", None) or str(int(code))
        return EngineError(f"{name}: {shown}", where="engine driver")

    def allocate(self, size: int) -> Any:
        """Return device memory that `close` frees."""
        (pointer,) = self.call("cuMemAlloc", size)
        self._pointers.append(pointer)
        return pointer

    def kernel(self) -> Any:
        """Load the workload's kernel: the driver compiles its PTX here."""
        text = np.frombuffer(KERNEL_FILE.read_bytes() + b"\0", dtype=np.uint8)
        (self._module,) = self.call("cuModuleLoadData", text.ctypes.data)
        (function,) = self.call("cuModuleGetFunction", self._module, KERNEL_NAME)
        return function

    def close(self) -> None:
        """Release memory, module and context; a driver that is gone has already done so."""
        try:
            for pointer in self._pointers:
                self.call("cuMemFree", pointer)
            if self._module is not None:
                self.call("cuModuleUnload", self._module)
            self.call("cuDevicePrimaryCtxRelease", self._device)
        except EngineError:
            pass
        self._pointers, self._module = [], None


def kernel_arguments(out: Any, a: Any, b: Any, scale: float) -> tuple[int, tuple[npt.NDArray[Any], ...]]:
    """Return the address of the argument list of `touch`, and the arrays that must stay alive while it is used.

    Built once: a tuple of values would be packed again at each launch.
    """
    values: list[npt.NDArray[Any]] = [np.array([int(pointer)], dtype=np.uint64) for pointer in (out, a, b)]
    values.append(np.array([scale], dtype=np.float32))
    addresses = np.array([value.ctypes.data for value in values], dtype=np.uint64)
    return int(addresses.ctypes.data), (addresses, *values)
