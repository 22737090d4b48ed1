"""What frameworks ask beside launches and copies: alike on both libraries, and asked of the proxy once."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

FRAMEWORKS = Path(__file__).parents[2] / "programs" / "frameworks.py"


@pytest.mark.parametrize("transport", ["shm", "unix-socket"])
def test_every_call_is_answered_alike_direct_and_proxied(nursery: Any, transport: str) -> None:
    proxy = nursery.proxy()
    expected = nursery.run(FRAMEWORKS, nursery.direct())
    assert len(expected.splitlines()) == 13
    assert nursery.run(FRAMEWORKS, proxy.environment(transport)).splitlines() == expected.splitlines()
    proxy.wait_for(lambda status: not status["tenants"] and status["totals"]["memory_bytes"] == 0)


def test_what_is_asked_often_travels_once(nursery: Any) -> None:
    proxy = nursery.proxy()
    program = """
import gpu
from gpu import *
from cuda.bindings import driver as cu
import numpy as np
gpu.begin()
loaded = ok(cu.cuLibraryLoadData(image("vector"), [], [], 0, [], [], 0))
there = to_device(np.zeros(16, np.float32))
def ask():
    kernel = ok(cu.cuLibraryGetKernel(loaded, b"vector_add"))
    handle = ok(cu.cuKernelGetFunction(kernel))
    for number in (0, 1, 4):
        ok(cu.cuFuncGetAttribute(cu.CUfunction_attribute(number), handle))
        ok(cu.cuKernelGetAttribute(cu.CUfunction_attribute(number), kernel, 0))
    ok(cu.cuDeviceGetAttribute(cu.CUdevice_attribute(16), 0))
    ok(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(handle, 128, 0))
    ok(cu.cuOccupancyMaxPotentialBlockSize(handle, None, 0, 0))
    ok(cu.cuPointerGetAttribute(cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, there))
    ok(cu.cuMemGetAddressRange(there))
    ok(cu.cuCtxGetCurrent())
    ok(cu.cuFuncGetParamInfo(handle, 0))
ask()
before = describe()["calls"]
for _ in range(50):
    ask()
after = describe()["calls"]
sent = {name: count - before.get(name, 0) for name, count in after.items() if count != before.get(name, 0)}
assert sent == {"gputaxWaitPolicy": 1}, sent
assert (before["cuModuleLoadData"], before["cuFuncGetAttribute"], before["cuModuleGetFunction"]) == (1, 3, 1), before
"""
    nursery.run(program, proxy.environment())


@pytest.mark.parametrize("part", ["software", "vgpu"])
def test_the_library_is_also_found_without_its_version(nursery: Any, part: str) -> None:
    link = nursery.build / part / "libcuda.so"
    assert link.resolve() == (nursery.build / part / "libcuda.so.1").resolve()
    program = "import ctypes; ctypes.CDLL('libcuda.so').cuGraphCreate"
    nursery.run(program, nursery.direct() | {"LD_LIBRARY_PATH": str(nursery.build / part)})


BOASTING = """
/* The software device, with 7 for every attribute. */
int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)attribute;
    (void)device;
    *value = 7;
    return 0;
}
"""


def test_a_tenant_is_not_told_of_features_that_its_calls_do_not_have(nursery: Any) -> None:
    """A GPU has managed memory; behind the proxy it is refused, so the attribute must say so first."""
    source, backend = nursery.folder / "boasting.c", nursery.folder / "boasting.so"
    source.write_text(BOASTING, encoding="utf-8")
    software = nursery.build / "software"
    linked = ["-Wl,--no-as-needed", "-L", str(software), "-l:libcuda.so.1", f"-Wl,-rpath,{software}"]
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(backend), str(source), *linked], check=True)
    proxy = nursery.proxy("--backend", str(backend))
    program = """
import gpu
from gpu import *
from cuda.bindings import driver as cu
gpu.begin()
names = ["MULTIPROCESSOR_COUNT", "MEMORY_POOLS_SUPPORTED", "CAN_MAP_HOST_MEMORY", "MANAGED_MEMORY",
         "PAGEABLE_MEMORY_ACCESS", "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED", "CLUSTER_LAUNCH",
         "MEMPOOL_SUPPORTED_HANDLE_TYPES", "CAN_USE_64_BIT_STREAM_MEM_OPS"]
print([ok(cu.cuDeviceGetAttribute(getattr(cu.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), 0)) for name in names])
"""
    assert nursery.run(program, proxy.environment()) == "[7, 7, 7, 0, 0, 0, 0, 0, 0]\n"
