"""What programs see of the software device as a library: look-ups, versions, attributes, contexts, refusals."""

from __future__ import annotations

import ctypes
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

BEGIN = """
import ctypes, json
import numpy as np
from device import *
"""


def answers(on_software: Any, program: str, **settings: str) -> Any:
    return json.loads(on_software(BEGIN + program, **settings).stdout)


@pytest.fixture(scope="module")
def library(native_build: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(native_build / "software" / "libcuda.so.1"), mode=ctypes.RTLD_LOCAL)


def look_up(library: ctypes.CDLL, name: str, version: int, flags: int = 0) -> tuple[int, int | None, int]:
    function, status = ctypes.c_void_p(), ctypes.c_int(-1)
    code = library.cuGetProcAddress_v2(
        name.encode(), ctypes.byref(function), version, ctypes.c_uint64(flags), ctypes.byref(status)
    )
    return code, function.value, status.value


@pytest.mark.parametrize(
    ("name", "version", "exported"),
    [
        ("cuCtxCreate", 3020, "cuCtxCreate_v2"),
        ("cuCtxCreate", 11030, "cuCtxCreate_v2"),
        ("cuCtxCreate", 11040, "cuCtxCreate_v3"),
        ("cuCtxCreate", 12050, "cuCtxCreate_v4"),
        ("cuCtxCreate", 13000, "cuCtxCreate_v4"),
        ("cuMemAlloc", 3020, "cuMemAlloc_v2"),
        ("cuGetProcAddress", 11030, "cuGetProcAddress"),
        ("cuGetProcAddress", 12000, "cuGetProcAddress_v2"),
        ("cuEventElapsedTime", 12070, "cuEventElapsedTime"),
        ("cuEventElapsedTime", 12080, "cuEventElapsedTime_v2"),
        ("cuDeviceGetUuid", 11030, "cuDeviceGetUuid"),
        ("cuDeviceGetUuid", 11040, "cuDeviceGetUuid_v2"),
        ("cuCtxSynchronize", 12080, "cuCtxSynchronize"),
        ("cuCtxSynchronize", 13000, "cuCtxSynchronize_v2"),
    ],
)
def test_a_look_up_gives_the_newest_abi_that_the_caller_knows(
    library: ctypes.CDLL, name: str, version: int, exported: str
) -> None:
    wanted = ctypes.cast(getattr(library, exported), ctypes.c_void_p).value
    assert look_up(library, name, version) == (0, wanted, 0)


def test_only_the_driver_interface_is_exported(native_build: Path) -> None:
    command = ["nm", "-D", "--defined-only", str(native_build / "software" / "libcuda.so.1")]
    lines = [line.split() for line in subprocess.check_output(command, text=True).splitlines()]
    symbols = [name for _, kind, name in lines if kind.isupper()]  # the others are local
    assert len(symbols) > 70
    # For the proxy: a load within a tenant's quota, its host memory, its busy time, the compiler process. For reports:
    # what was compiled; whether programs on the CUDA runtime were taken.
    own = {"gputaxModuleLoadBounded", "gputaxSetMeter", "gputaxBusy", "gputaxServeCompiler"}
    own |= {"gputax_soft_report", "gputax_runtime_report"}
    assert all(symbol.startswith("cu") for symbol in set(symbols) - own)


def test_a_cuda_runtime_program_is_refused_cleanly(on_software: Any) -> None:
    """The runtime inside of cuda-bindings asks for hidden tables of the driver, and gives up in order."""
    found = json.loads(
        on_software("""
import json
from cuda.bindings import runtime
print(json.dumps([runtime.cudaGetDeviceCount()[0].name, runtime.cudaMalloc(16)[0].name]))
""").stdout
    )
    assert found == ["cudaErrorSymbolNotFound"] * 2


def test_a_call_that_is_not_there_raises(on_software: Any) -> None:
    found = answers(
        on_software,
        """
start()
try:
    driver.cuTexObjectDestroy(0)
except Exception as error:
    print(json.dumps(type(error).__name__))
""",
    )
    assert found == "FunctionNotFoundError"


def test_version_count_and_attributes(on_software: Any) -> None:
    found = answers(
        on_software,
        """
before = error_of(driver.cuDeviceGetCount())
start()
A = driver.CUdevice_attribute
names = ("COMPUTE_CAPABILITY_MAJOR", "WARP_SIZE", "MAX_THREADS_PER_BLOCK", "MANAGED_MEMORY", "COOPERATIVE_LAUNCH")
values = [check(driver.cuDeviceGetAttribute(getattr(A, "CU_DEVICE_ATTRIBUTE_" + name), 0)) for name in names]
print(json.dumps([before, check(driver.cuDriverGetVersion()), check(driver.cuDeviceGetCount()), values,
                  error_of(driver.cuDeviceGet(1)), check(driver.cuDeviceTotalMem(0))]))
""",
    )
    expected = ["CUDA_ERROR_NOT_INITIALIZED", 13000, 1, [9, 32, 1024, 0, 1], "CUDA_ERROR_INVALID_DEVICE", 1 << 30]
    assert found == expected


def test_contexts_stack_and_primary(on_software: Any) -> None:
    found = answers(
        on_software,
        """
check(driver.cuInit(0))
none = int(check(driver.cuCtxGetCurrent()))
a, b = start(), start()
order = [int(check(driver.cuCtxPopCurrent())) == int(b), int(check(driver.cuCtxGetCurrent())) == int(a)]
check(driver.cuCtxPushCurrent(b))
primary = check(driver.cuDevicePrimaryCtxRetain(0))
state = list(check(driver.cuDevicePrimaryCtxGetState(0)))
check(driver.cuCtxSetCurrent(primary))
p = check(driver.cuMemAlloc(4096))
free = check(driver.cuMemGetInfo())[0]
check(driver.cuDevicePrimaryCtxRelease(0))
check(driver.cuCtxSetCurrent(a))
print(json.dumps([none, order, state, check(driver.cuMemGetInfo())[0] - free,
                  list(check(driver.cuDevicePrimaryCtxGetState(0))), error_of(driver.cuDevicePrimaryCtxRelease(0)),
                  list(check(driver.cuCtxGetStreamPriorityRange())), error_of(driver.cuCtxDestroy(primary))]))
""",
    )
    invalid = "CUDA_ERROR_INVALID_CONTEXT"
    assert found == [0, [True, True], [0, 1], 4096, [0, 0], invalid, [0, -5], invalid]


def test_a_destroyed_context_frees_what_it_owned(on_software: Any) -> None:
    before, during, after = answers(
        on_software,
        """
keep = start()
before = check(driver.cuMemGetInfo())[0]
other = start()
for _ in range(10):
    check(driver.cuMemAlloc(1 << 20))
load("language"); check(driver.cuStreamCreate(0)); check(driver.cuEventCreate(0)); check(driver.cuMemAllocHost(4096))
during = check(driver.cuMemGetInfo())[0]
check(driver.cuCtxDestroy(other))
print(json.dumps([before, during, check(driver.cuMemGetInfo())[0]]))
""",
    )
    assert during < before - (10 << 20)
    assert after == before
