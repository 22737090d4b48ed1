"""libnvidia-ml of ours, asked by the real pynvml: the tenant's device, its memory within the quota, its own process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.native.proxies import CONTEXT_BYTES

PROGRAM = """
import json, os, sys
import pynvml
from pynvml import *

def refused(question, *words):
    try:
        question(*words)
    except NVMLError as error:
        return str(error)

uninitialised = refused(nvmlDeviceGetCount)
nvmlInit()
device = nvmlDeviceGetHandleByIndex(0)
before = nvmlDeviceGetMemoryInfo(device)
import gpu
from gpu import ok
from cuda.bindings import driver as cu
gpu.begin()
ok(cu.cuMemAlloc(64 << 20))
memory, second = nvmlDeviceGetMemoryInfo(device), nvmlDeviceGetMemoryInfo(device, version=nvmlMemory_v2)
pci = nvmlDeviceGetPciInfo(device)
print(json.dumps({
    "uninitialised": uninitialised,
    "count": nvmlDeviceGetCount(),
    "name": nvmlDeviceGetName(device),
    "cuda_name": ok(cu.cuDeviceGetName(256, 0)).split(b"\\0")[0].decode(),
    "uuid": nvmlDeviceGetUUID(device),
    "by_uuid": nvmlDeviceGetIndex(nvmlDeviceGetHandleByUUID(nvmlDeviceGetUUID(device))),
    "by_pci": nvmlDeviceGetIndex(nvmlDeviceGetHandleByPciBusId(pci.busId)),
    "pci": [pci.busId, pci.busIdLegacy],
    "cuda": [nvmlSystemGetCudaDriverVersion(), ok(cu.cuDriverGetVersion())],
    "capability": nvmlDeviceGetCudaComputeCapability(device),
    "before": [before.total, before.used],
    "memory": [memory.total, memory.used, memory.free],
    "second": [second.total, second.used, second.free, second.reserved],
    "processes": [[each.pid == os.getpid(), each.usedGpuMemory] for each in
                   nvmlDeviceGetComputeRunningProcesses(device)],
    "graphics": nvmlDeviceGetGraphicsRunningProcesses(device),
    "refused": [refused(nvmlDeviceGetProcessUtilization, device, 0), refused(nvmlDeviceGetTemperature, device, 0),
                refused(nvmlDeviceGetPowerUsage, device), refused(nvmlDeviceGetHandleByIndex, 1),
                refused(nvmlDeviceGetHandleByUUID, b"GPU-no"), refused(nvmlDeviceGetHandleByPciBusId, b"0000:77:00.0"),
                refused(nvmlDeviceGetMemoryInfo, device, 1)],
}))
nvmlShutdown()
assert refused(nvmlDeviceGetCount) == "Uninitialized"
"""


@pytest.mark.parametrize("transport", ["shm", "unix-socket"])
def test_pynvml_sees_the_tenants_device_and_nothing_else(nursery: Any, transport: str) -> None:
    proxy = nursery.proxy("--memory-mb", "256")
    other = nursery.start(
        "import gpu; gpu.begin(); gpu.ok(gpu.driver.cuMemAlloc(32 << 20)); print('ready', flush=True); input()",
        proxy.environment(),
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "ready\n"
    found = json.loads(nursery.run(PROGRAM, proxy.environment(transport)))
    assert found["uninitialised"] == "Uninitialized"
    assert found["count"] == 1
    assert found["name"] == found["cuda_name"] == "gputax software device"
    assert found["uuid"] == "GPU-67707574-6178-2d73-6f66-747761726500"
    assert (found["by_uuid"], found["by_pci"]) == (0, 0)
    assert found["pci"] == ["00000000:00:00.0", "0000:00:00.0"]
    assert found["cuda"][0] == found["cuda"][1]
    assert found["capability"] == [9, 0]
    total, used = 256 << 20, (64 << 20) + CONTEXT_BYTES
    assert found["before"] == [total, 0], "nothing of the other tenant's"
    assert found["memory"] == [total, used, total - used]
    assert found["second"] == [total, used, total - used, 0]
    assert found["processes"] == [[True, used]]
    assert found["graphics"] == []
    assert found["refused"] == [
        *["Not Supported"] * 3, "Invalid Argument", "Not Found", "Not Found", "Argument version mismatch",
    ]  # fmt: skip


WITHOUT = """
from pynvml import *
try:
    nvmlInit()
except NVMLError as error:
    print(error)
"""


def test_without_a_proxy_there_is_no_driver(nursery: Any) -> None:
    environment = nursery.proxy().environment() | {"GPUTAX_PROXY_SOCKET": ""}
    assert nursery.run(WITHOUT, environment) == "Driver Not Loaded\n"


def test_another_libcuda_is_not_answered_for(nursery: Any) -> None:
    """Beside the software device, which has no quota: its numbers would be those of all tenants."""
    environment = nursery.direct()
    environment["LD_LIBRARY_PATH"] += f":{nursery.build / 'vgpu'}"
    assert nursery.run(WITHOUT, environment) == "Driver Not Loaded\n"


def test_a_proxy_that_ends_is_a_lost_device(nursery: Any) -> None:
    proxy = nursery.proxy()
    program = """
from pynvml import *
nvmlInit()
device = nvmlDeviceGetHandleByIndex(0)
print("ready", flush=True)
input()
try:
    nvmlDeviceGetMemoryInfo(device)
except NVMLError as error:
    print(error)
"""
    process = nursery.start(program, proxy.environment())
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    proxy.stop()
    output, errors = process.communicate("\n", timeout=30)
    assert output == "GPU is lost\n", errors


# Launches of a stated time each: the device is at work for `busy` of every `busy + idle` milliseconds. On busy cores
# both take longer, so the program says what it did: launches take at least their time, and asleep it makes none.
LOAD = """
import json, sys, time
from pynvml import *
import gpu
from cuda.bindings import driver as cu
gpu.begin()
kernel = gpu.function(gpu.module("vector"), "vector_add")
at = gpu.ok(cu.cuMemAlloc(4096))
nvmlInit()
device = nvmlDeviceGetHandleByIndex(0)
busy, idle, seconds = map(float, sys.argv[1:])
def work(until):
    launched = slept = 0.0
    while time.monotonic() < until:
        for _ in range(int(busy)):
            gpu.launch(kernel, (1,), (32,), (at, at, at, (0, gpu.ctypes.c_int)))
        gpu.ok(cu.cuCtxSynchronize())
        launched += int(busy) / 1e3
        begun = time.monotonic()
        time.sleep(idle / 1e3)
        slept += time.monotonic() - begun
    return launched, slept
def rates():
    found = nvmlDeviceGetUtilizationRates(device)
    return [found.gpu, found.memory]
work(time.monotonic() + 0.3)
begun = time.monotonic()
rates()
launched, slept = work(time.monotonic() + seconds)
loaded, asked = rates(), time.monotonic()
at_once, pause = rates(), time.monotonic() - asked
window = asked - begun
time.sleep(0.4)
print(json.dumps([loaded, at_once, rates(), [100 * launched / window, 100 * (1 - slept / window)], pause]))
"""
SHORTEST_WINDOW_S = 1 / 6
KERNEL_OF_ONE_MS = {"GPUTAX_SOFT_KERNELS": "null", "GPUTAX_SOFT_KERNEL_NS": "1000000"}


def test_utilisation_is_the_share_of_time_in_which_the_device_worked(nursery: Any) -> None:
    proxy = nursery.proxy(device=KERNEL_OF_ONE_MS)
    full, again, after, bounds, pause = json.loads(nursery.run(LOAD, proxy.environment(), "20", "0", "1"))
    assert full[0] >= bounds[0] - 1 > 0
    assert again == full or pause > SHORTEST_WINDOW_S, "a window of microseconds is not one"
    assert after[0] <= 20
    part, _, _, bounds, _ = json.loads(nursery.run(LOAD, proxy.environment(), "20", "40", "1"))
    assert bounds[0] - 1 <= part[0] <= bounds[1] + 1


def test_utilisation_of_other_tenants_is_not_in_it(nursery: Any) -> None:
    proxy = nursery.proxy(device=KERNEL_OF_ONE_MS)
    other = nursery.start(LOAD, proxy.environment(), "20", "0", "4")
    proxy.wait_for(lambda status: status["software"]["launches_null"] > 20)
    mine, *_ = json.loads(nursery.run(LOAD, proxy.environment(), "0", "50", "1"))
    assert mine == [0, 0]
    output, errors = other.communicate(timeout=30)
    assert json.loads(output)[0][0] > 0, errors


def test_utilisation_that_nobody_counts_is_not_supported(nursery: Any) -> None:
    """As with NVIDIA's driver as the backend: it has no such function."""
    image = (nursery.build / "software" / "libcuda.so.1").read_bytes()
    assert b"gputaxBusy\0" in image
    driver = nursery.folder / "libcuda.so.1"
    driver.write_bytes(image.replace(b"gputaxBusy\0", b"gputaxBuzy\0"))
    proxy = nursery.proxy("--backend", str(driver))
    program = """
from pynvml import *
nvmlInit()
try:
    nvmlDeviceGetUtilizationRates(nvmlDeviceGetHandleByIndex(0))
except NVMLError as error:
    print(error)
"""
    assert nursery.run(program, proxy.environment()) == "Not Supported\n"
