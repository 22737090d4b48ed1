"""What the proxy and libvgpu tell about themselves: counters, status, metrics, the backend's name."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import pytest

PROGRAM = """
import json
import gpu
from gpu import *
from cuda.bindings import driver as cu
import numpy as np, ctypes
gpu.begin()
a = np.arange(5000, dtype=np.float32)
one, out = to_device(a), to_device(a)
kernel = function(module("vector"), "vector_add")
for _ in range(20):
    launch(kernel, (20,), (256,), (one, one, out, (5000, ctypes.c_int)))
for _ in range(3):
    cu.cuMemAlloc(1 << 60)
ok(cu.cuMemFree(one))
for _ in range(4):
    ok(cu.cuDeviceGetAttribute(cu.CUdevice_attribute(16), 0))  # cached: one message
ok(cu.cuCtxSynchronize())
account = describe()
print(json.dumps(account), flush=True)
input()
"""


@pytest.mark.parametrize("transport", ["shm", "unix-socket"])
def test_both_sides_count_the_same_calls(nursery: Any, transport: str) -> None:
    proxy = nursery.proxy("--spin", "never")
    client = nursery.start(PROGRAM, proxy.environment(transport))
    account = json.loads(client.stdout.readline())
    status = proxy.status()
    [tenant] = status["tenants"]
    assert account["calls"] == tenant["calls"]
    assert account["calls"]["cuLaunchKernel"] == 20
    assert account["calls"]["cuDeviceGetAttribute"] == 1
    assert tenant["errors"] == 3
    assert (account["tenant"], account["transport"]) == (tenant["id"], transport)
    assert account["backend"] == status["backend"] == proxy.ready["backend"]
    assert account["device"] == status["device"] == "gputax software device"
    assert account["wait_policy"] == status["wait_policy"] == "sleep"
    assert (tenant["pid"], tenant["memory_bytes"]) == (client.pid, 20000 + tenant["memory_bytes"] % 20000)
    assert status["transports"] == ["shm", "unix-socket"]
    client.communicate("\n", timeout=20)
    ended = proxy.wait_for(lambda document: not document["tenants"])
    assert ended["ended_tenants"][0]["calls"] == account["calls"] == ended["totals"]["calls"]


def test_metrics_for_prometheus(nursery: Any) -> None:
    proxy = nursery.proxy()
    client = nursery.start(PROGRAM, proxy.environment())
    client.stdout.readline()
    head, text = proxy.ask_status(b"GET /metrics HTTP/1.0\r\n\r\n").decode().split("\r\n\r\n", 1)
    assert head.startswith("HTTP/1.0 200 OK\r\n")
    samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert samples['gputax_proxy_tenant_calls_total{tenant="1",call="cuLaunchKernel"}'] == "20"
    assert samples['gputax_proxy_calls_total{call="cuLaunchKernel"}'] == "20"
    named = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert {line.split("{")[0].split(" ")[0] for line in samples} <= named


def test_a_slow_reader_of_the_status_holds_nobody_up(nursery: Any) -> None:
    proxy = nursery.proxy()
    readers = [socket.socket(socket.AF_UNIX) for _ in range(5)]
    for reader in readers:  # they connect and neither speak nor read
        reader.connect(f"{proxy.socket}.status")
    begun = time.monotonic()
    nursery.run("import gpu; from gpu import *; gpu.begin(); ok(gpu.driver.cuCtxSynchronize())", proxy.environment())
    assert time.monotonic() - begun < 5
    assert proxy.status()["pid"] == proxy.process.pid
    for reader in readers:
        reader.close()


@pytest.mark.parametrize(("option", "name"), [("auto", "adaptive"), ("always", "spin"), ("never", "sleep")])
def test_the_wait_policy_is_told(nursery: Any, option: str, name: str) -> None:
    proxy = nursery.proxy("--spin", option)
    assert proxy.ready["wait_policy"] == name
    output = nursery.run("import gpu; gpu.begin(); print(gpu.describe()['wait_policy'])", proxy.environment())
    assert output == f"{name}\n"


def test_four_busy_tenants_are_above_the_budget_of_two_cores(nursery: Any) -> None:
    proxy = nursery.proxy(device={"GPUTAX_SOFT_KERNEL_US": "125"})
    program = """
import gpu, time
from gpu import *
from cuda.bindings import driver as cu
gpu.begin()
print("ready", flush=True)
until = time.monotonic() + 20
while time.monotonic() < until:
    ok(cu.cuCtxSynchronize())
"""
    clients = [nursery.start(program, proxy.environment()) for _ in range(4)]
    for client in clients:
        assert client.stdout.readline() == "ready\n"
    status = proxy.wait_for(lambda document: document["active_tenants"] == 4)
    if status["cores_free"] < 8:
        assert status["spin_us"] <= 5
    for client in clients:
        client.kill()
    proxy.wait_for(lambda document: document["active_tenants"] == 0)
