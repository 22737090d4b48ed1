"""Tenants in processes of their own share one software device: its memory, its time, and its report."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from tests.native.plain.proxy.test_workers import ASKS, MIB, WAITING, ended, start, worker_of

FLOOD = """
import sys
import gpu
from gpu import *
from cuda.bindings import driver as cu
gpu.begin()
kernel = function(module("micro"), "nothing")
print(describe()["tenant"], flush=True)
for _ in range(int(sys.argv[1])):
    launch(kernel, (1,), (1,), ())
print("posted", flush=True)
sys.stdin.readline()
"""
COPIES = """
import sys, time
import gpu
from gpu import *
from cuda.bindings import driver as cu
import numpy as np
gpu.begin()
array = np.zeros(4096, np.uint8)
pointer = to_device(array)
worst = 0.0
for _ in range(int(sys.argv[1])):
    begun = time.monotonic()
    from_device(pointer, array)
    worst = max(worst, time.monotonic() - begun)
print(worst)
"""
KERNELS = """
import sys, time
import gpu
from gpu import *
from cuda.bindings import driver as cu
gpu.begin()
kernel = function(module("micro"), "nothing")
print(describe()["tenant"], flush=True)
sys.stdin.readline()
until, done = time.monotonic() + 1.5, 0
while time.monotonic() < until:
    for _ in range(int(sys.argv[1])):
        launch(kernel, (1,), (1,), ())
    ok(cu.cuCtxSynchronize())
    done += int(sys.argv[1])
print(done)
"""


def test_the_memory_of_all_tenants_is_that_of_one_device(nursery: Any) -> None:
    proxy = nursery.proxy("--identity", "process", device={"GPUTAX_SOFT_MEMORY_MB": "64"})
    _, tenant = start(nursery, WAITING, proxy, str(40 * MIB))
    left = f"{24 * MIB} {64 * MIB}\n"
    assert nursery.run(ASKS, proxy.environment(), str(25 * MIB)) == f"CUDA_ERROR_OUT_OF_MEMORY {left}"
    os.kill(worker_of(proxy, tenant), signal.SIGKILL)
    ended(proxy, tenant)
    assert nursery.run(ASKS, proxy.environment(), str(60 * MIB)).startswith("CUDA_SUCCESS")


def test_what_a_tenant_posted_goes_with_it(nursery: Any) -> None:
    """5,000 kernels of 1 ms: five seconds of work that nobody waits for any more."""
    proxy = nursery.proxy(device={"GPUTAX_SOFT_KERNEL_US": "1000"})
    flood, tenant = start(nursery, FLOOD, proxy, "5000")
    proxy.wait_for(lambda status: status["tenants"][0]["calls"].get("cuLaunchKernel", 0) > 50)
    flood.kill()
    ended(proxy, tenant)
    assert float(nursery.run(COPIES, proxy.environment(), "1")) < 0.5


def test_who_posts_much_holds_nobody_up(nursery: Any) -> None:
    proxy = nursery.proxy(device={"GPUTAX_SOFT_KERNEL_US": "1000"})
    start(nursery, FLOOD, proxy, "100000")
    proxy.wait_for(lambda status: status["tenants"][0]["calls"].get("cuLaunchKernel", 0) > 50)
    assert float(nursery.run(COPIES, proxy.environment(), "20")) < 0.5


def test_kernel_time_is_that_of_one_device_and_each_tenant_gets_its_part(nursery: Any) -> None:
    proxy = nursery.proxy(device={"GPUTAX_SOFT_KERNEL_US": "2000"})
    tenants = [start(nursery, KERNELS, proxy, count)[0] for count in ("1", "1", "64")]  # the last one is greedy
    for tenant in tenants:
        assert tenant.stdin
        tenant.stdin.write("\n")
        tenant.stdin.flush()
    begun = time.monotonic()
    done = [int(tenant.communicate(timeout=60)[0]) for tenant in tenants]
    took = time.monotonic() - begun
    assert sum(done) * 0.002 <= took, "three tenants get no more than one device has"
    # In parts of what was done, not of the 750 that fit into the time: on a busy machine a tenant may stand still.
    assert min(done) > sum(done) / 6, f"{done}: a fair part is a third"


def test_the_report_is_that_of_all_tenants(nursery: Any) -> None:
    proxy = nursery.proxy()
    for _ in range(2):
        nursery.run(FLOOD.replace("sys.stdin.readline()", "ok(cu.cuCtxSynchronize())"), proxy.environment(), "5")
    assert proxy.status()["software"]["launches_interpreted"] == 10
