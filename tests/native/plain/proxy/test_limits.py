"""Quotas: what a tenant may take, what it is shown, and that overruns are errors of its own."""

from __future__ import annotations

import os
import shutil
from typing import Any

import pytest

from tests.native.proxies import CONTEXT_BYTES

MIB = 1 << 20


def test_memory_is_the_quota_in_every_answer_and_an_overrun_is_out_of_memory(nursery: Any) -> None:
    proxy = nursery.proxy("--memory-mb", "64")
    program = """
import sys
import gpu
from gpu import *
from cuda.bindings import driver as cu
gpu.begin()
MIB = 1 << 20
assert ok(cu.cuDeviceTotalMem(0)) == 64 * MIB
free, total = ok(cu.cuMemGetInfo())
assert (64 * MIB - free, total) == (int(sys.argv[1]), 64 * MIB)  # the context counts
first = ok(cu.cuMemAlloc(40 * MIB))
rest = free - 40 * MIB
assert ok(cu.cuMemGetInfo()) == (rest, 64 * MIB)
for absurd in (rest + 1, 25 * MIB, 64 * MIB, 1 << 40, (1 << 64) - 1):
    assert error(cu.cuMemAlloc(absurd)) == "CUDA_ERROR_OUT_OF_MEMORY"
second = ok(cu.cuMemAlloc(rest))
assert error(cu.cuMemAlloc(1)) == "CUDA_ERROR_OUT_OF_MEMORY"
ok(cu.cuMemFree(first))
assert ok(cu.cuMemGetInfo()) == (40 * MIB, 64 * MIB)
print(error(cu.cuMemAlloc(40 * MIB)))
"""
    assert nursery.run(program, proxy.environment(), str(CONTEXT_BYTES)) == "CUDA_SUCCESS\n"


def test_a_module_counts_as_memory_and_comes_back_when_unloaded(nursery: Any) -> None:
    proxy = nursery.proxy("--memory-mb", "8")
    program = """
import gpu
from gpu import *
from cuda.bindings import driver as cu
gpu.begin()
free = ok(cu.cuMemGetInfo())[0]
loaded = module("vector")
taken = free - ok(cu.cuMemGetInfo())[0]
assert len(image("vector")) < taken < 40 * len(image("vector")), taken  # the image, and the code made of it
ok(cu.cuModuleUnload(loaded))
assert ok(cu.cuMemGetInfo())[0] == free
padded = image("vector")[:-1] + b"//" + b"x" * (9 << 20) + b"\\0"
assert error(cu.cuModuleLoadData(padded)) == "CUDA_ERROR_OUT_OF_MEMORY"
huge = image("vector")[:-1] + b"//" + b"x" * (65 << 20) + b"\\0"
assert error(cu.cuModuleLoadData(huge)) == "CUDA_ERROR_INVALID_IMAGE"
assert error(cu.cuModuleGetFunction(module("vector"), b"f" * 8000)) == "CUDA_ERROR_INVALID_VALUE"
print(ok(cu.cuCtxSynchronize()) == ())
"""
    nursery.run(program, proxy.environment())


def test_streams_and_modules_have_limits_of_their_own(nursery: Any) -> None:
    proxy = nursery.proxy("--streams", "3", "--modules", "2")
    program = """
import gpu
from gpu import *
from cuda.bindings import driver as cu
gpu.begin()
streams = [ok(cu.cuStreamCreate(0)) for _ in range(3)]
assert error(cu.cuStreamCreate(0)) == "CUDA_ERROR_OUT_OF_MEMORY"
ok(cu.cuStreamDestroy(streams[1]))
ok(cu.cuStreamCreate(0))
modules = [module("vector") for _ in range(2)]
assert error(cu.cuModuleLoadData(image("vector"))) == "CUDA_ERROR_OUT_OF_MEMORY"
ok(cu.cuModuleUnload(modules[0]))
module("vector")
for _ in range(40):
    if error(cu.cuCtxCreate(None, 0, 0)) != "CUDA_SUCCESS":
        break
else:
    raise AssertionError("contexts without end")
"""
    nursery.run(program, proxy.environment())


LAUNCHES = """
import time
import gpu
from gpu import *
from cuda.bindings import driver as cu
gpu.begin()
kernel = function(module("micro"), "nothing")
begun = time.monotonic()
for _ in range(300):
    launch(kernel, (1,), (1,), ())
ok(cu.cuCtxSynchronize())
print(time.monotonic() - begun)
"""


def test_launches_per_second_are_held_down_to_the_quota(nursery: Any) -> None:
    proxy = nursery.proxy("--launches-per-s", "200")
    seconds = float(nursery.run(LAUNCHES, proxy.environment()))
    assert 1.3 < seconds < 5  # 300 launches, of which a tenth of a second's (20) come free
    tenant = proxy.wait_for(lambda status: bool(status["ended_tenants"]))["ended_tenants"][0]
    assert tenant["throttled_s"] > 1
    free = nursery.proxy(name="free")
    assert float(nursery.run(LAUNCHES, free.environment())) < seconds / 2


def test_a_throttled_tenant_that_dies_is_gone_at_once(nursery: Any) -> None:
    proxy = nursery.proxy("--launches-per-s", "1")
    held = nursery.start(LAUNCHES.replace("begun =", "print('ready', flush=True); begun ="), proxy.environment())
    assert held.stdout.readline() == "ready\n"
    proxy.wait_for(lambda status: status["tenants"][0]["calls"].get("cuLaunchKernel", 0) > 1)
    held.kill()
    proxy.wait_for(lambda status: not status["tenants"], seconds=3)


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs a PID namespace")
@pytest.mark.parametrize("transport", ["shm", "unix-socket"])
def test_a_proxy_that_does_not_see_its_tenants_processes_sees_their_connections_end(
    nursery: Any, transport: str
) -> None:
    """In a PID namespace of its own the kernel gives it no process of a tenant to watch."""
    within = ("unshare", "--pid", "--fork", "--kill-child")
    proxy = nursery.proxy("--launches-per-s", "1", within=within)
    program = LAUNCHES.replace("begun =", "print('ready', flush=True); begun =")
    held = nursery.start(program, proxy.environment(transport))
    assert held.stdout.readline() == "ready\n"
    status = proxy.wait_for(lambda status: status["tenants"][0]["calls"].get("cuLaunchKernel", 0) > 1)
    assert status["tenants"][0]["pid"] == 0
    held.kill()
    proxy.wait_for(lambda status: not status["tenants"], seconds=3)


FILL = """
import sys
import gpu
from gpu import *
from cuda.bindings import driver as cu
gpu.begin()
for size in (100, 4096, 1 << 20, 5 << 20):
    pointer = ok(cu.cuMemAlloc(size))
    ok(cu.cuMemsetD8(pointer, 0xEE, size))
    if size < 4096 or sys.argv[1] == "free":
        ok(cu.cuMemFree(pointer))
ok(cu.cuCtxSynchronize())
"""
LOOK = """
import gpu
from gpu import *
from cuda.bindings import driver as cu
import numpy as np
gpu.begin()
for size in (100, 4096, 1 << 20, 16 << 20):
    array = np.ones(size, np.uint8)
    pointer = ok(cu.cuMemAlloc(size))
    assert not from_device(pointer, array).any(), size
"""


def test_memory_of_one_tenant_is_zero_before_the_next_gets_it(nursery: Any) -> None:
    small_device = {"GPUTAX_SOFT_MEMORY_MB": "32"}  # so that the same bytes come again
    for options in ((), ("--clear", "always")):
        proxy = nursery.proxy(*options, name=f"proxy{len(options)}", device=small_device)
        for how in ("free", "leave"):
            nursery.run(FILL, proxy.environment(), how)
            nursery.run(LOOK, proxy.environment())
        status = proxy.wait_for(lambda document: len(document["ended_tenants"]) == 4)
        cleared = {tenant["cleared_bytes"] for tenant in status["ended_tenants"]}
        filled, looked = (
            512 + 4096 + (more * MIB) for more in (6, 17)
        )  # 100 bytes are cleared to the end of their piece
        assert cleared == ({filled, looked} if options else {0})
        assert ("proxy" in status["clears_memory"]) == bool(options)
