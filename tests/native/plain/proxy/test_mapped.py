"""Host memory that kernels reach: shared with the proxy, charged to the tenant, and no way to hurt the proxy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MAPPED = Path(__file__).parents[2] / "programs" / "mapped.py"
BEGIN = """
import ctypes, os
import gpu
from gpu import *
from cuda.bindings import driver as cu
import numpy as np
gpu.begin()
"""


def test_it_is_the_same_direct_and_proxied(nursery: Any) -> None:
    proxy = nursery.proxy()
    expected = nursery.run(MAPPED, nursery.direct())
    assert len(expected.splitlines()) == 4
    assert nursery.run(MAPPED, proxy.environment()).splitlines() == expected.splitlines()
    proxy.wait_for(lambda status: not status["tenants"] and status["totals"]["memory_bytes"] == 0)


def test_a_transport_without_shared_memory_says_so_first(nursery: Any) -> None:
    program = (
        BEGIN
        + """
can = cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY
assert ok(cu.cuDeviceGetAttribute(can, 0)) == 0
assert error(cu.cuMemHostAlloc(4096, 2)) == "CUDA_ERROR_NOT_SUPPORTED"
ok(cu.cuMemFreeHost(ok(cu.cuMemHostAlloc(4096, 0))))
"""
    )
    nursery.run(program, nursery.proxy().environment("unix-socket"))


def test_it_counts_for_the_quota_and_has_a_limit(nursery: Any) -> None:
    proxy = nursery.proxy("--memory-mb", "4")
    program = (
        BEGIN
        + """
before = ok(cu.cuMemGetInfo())[0]
first = ok(cu.cuMemHostAlloc((1 << 20) + 1, 2))
assert before - ok(cu.cuMemGetInfo())[0] == (1 << 20) + 4096
assert error(cu.cuMemHostAlloc(3 << 20, 2)) == "CUDA_ERROR_OUT_OF_MEMORY"
assert error(cu.cuMemHostAlloc((1 << 64) - 1, 2)) in ("CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_INVALID_VALUE")
ok(cu.cuMemFreeHost(first))
assert ok(cu.cuMemGetInfo())[0] == before
many = []
while True:
    answer = cu.cuMemHostAlloc(1, 2)
    if int(answer[0]):
        break
    many.append(answer[1])
assert error(answer) == "CUDA_ERROR_OUT_OF_MEMORY" and len(many) == 256, (answer, len(many))
"""
    )
    nursery.run(program, proxy.environment())  # and all of it is left behind
    proxy.wait_for(lambda status: not status["tenants"] and status["totals"]["memory_bytes"] == 0)


def test_a_tenant_can_neither_shrink_nor_grow_it_and_holes_are_its_own_loss(nursery: Any) -> None:
    proxy = nursery.proxy()
    program = (
        BEGIN
        + """
add = function(module("vector"), "vector_add")
pointer = int(ok(cu.cuMemHostAlloc(1 << 20, 2)))
there = ok(cu.cuMemHostGetDevicePointer(pointer, 0))
array = np.frombuffer((ctypes.c_char * (1 << 20)).from_address(pointer), np.float32)
array[:] = 4
line = next(line for line in open("/proc/self/maps") if "gputax-host" in line)
file = os.open("/proc/self/map_files/" + line.split()[0], os.O_RDWR)
for size in (0, 4096, 2 << 20):
    try:
        os.ftruncate(file, size)
    except PermissionError:
        continue
    raise SystemExit("truncated")
libc = ctypes.CDLL(None, use_errno=True)
assert libc.fcntl(file, 1033, 0x10) == -1  # F_ADD_SEALS, F_SEAL_FUTURE_WRITE: sealed against seals
assert libc.fallocate(file, 3, ctypes.c_long(0), ctypes.c_long(1 << 20)) == 0  # a hole over all of it
out = to_device(np.ones(1000, np.float32))
launch(add, (4,), (256,), (there, there, out, (1000, ctypes.c_int)))
assert (from_device(out, np.zeros(1000, np.float32)) == 0).all()
print("alive")
"""
    )
    assert nursery.run(program, proxy.environment()) == "alive\n"
    proxy.wait_for(lambda status: not status["tenants"] and status["totals"]["memory_bytes"] == 0)
    nursery.run(MAPPED, proxy.environment())


def test_a_child_does_not_have_its_parents_mapped_memory(nursery: Any) -> None:
    proxy = nursery.proxy()
    program = (
        BEGIN
        + """
pointer = int(ok(cu.cuMemHostAlloc(4096, 2)))
child = os.fork()
if child == 0:
    assert not any("gputax-host" in line for line in open("/proc/self/maps"))
    gpu.begin()
    assert error(cu.cuMemHostGetDevicePointer(pointer, 0)) == "CUDA_ERROR_INVALID_VALUE"
    other = int(ok(cu.cuMemHostAlloc(4096, 2)))
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
ctypes.memset(pointer, 1, 4096)
ok(cu.cuMemFreeHost(pointer))
"""
    )
    nursery.run(program, proxy.environment())


def family(pid: int) -> Iterator[int]:
    """A process and all that come from it."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*"):
        for child in (task / "children").read_text(encoding="utf-8").split():
            yield from family(int(child))


def holders(pid: int) -> list[int]:
    """The proxy's processes that have mapped a tenant's host memory."""
    found = []
    for one in family(pid):
        with contextlib.suppress(OSError):  # it has just ended
            if "gputax-host" in Path(f"/proc/{one}/maps").read_text(encoding="utf-8"):
                found.append(one)
    return found


def test_a_tenant_that_dies_leaves_nothing_behind(nursery: Any) -> None:
    proxy = nursery.proxy()
    program = BEGIN + "ok(cu.cuMemHostAlloc(1 << 20, 2))\nprint('there', flush=True)\nimport time; time.sleep(60)\n"
    tenant = nursery.start(program, proxy.environment())
    assert tenant.stdout.readline() == "there\n"
    assert len(holders(proxy.process.pid)) == 1
    tenant.kill()
    proxy.wait_for(lambda status: not status["tenants"] and status["totals"]["memory_bytes"] == 0)
    assert holders(proxy.process.pid) == []
