"""What the proxy and libvgpu tell about themselves: counters, status, metrics, the backend's name."""

from __future__ import annotations

import json
import socket
import time
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import pytest

PATIENCE_S = 0.9  # of the proxy with a reader that says nothing, and some
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
    assert tenant["pid"] == client.pid
    assert 20000 < tenant["memory_bytes"] < 80000  # the allocation; beside it the context and the module
    assert status["transports"] == ["shm", "unix-socket", "xen"]
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


@pytest.mark.parametrize("first", [b"", b"GE"])
def test_a_reader_that_was_held_up_before_it_asked_gets_what_it_asks_for(nursery: Any, first: bytes) -> None:
    proxy = nursery.proxy()
    for _ in range(10):
        answer = b""
        begun = time.monotonic()
        with socket.socket(socket.AF_UNIX) as reader, suppress(ConnectionError):
            reader.connect(f"{proxy.socket}.status")
            reader.sendall(first)
            time.sleep(0.3)
            reader.sendall(b"GET /metrics HTTP/1.0\r\n\r\n".removeprefix(first))
            answer = b"".join(iter(partial(reader.recv, 65536), b""))
        if time.monotonic() - begun < PATIENCE_S:  # else a busy machine held this reader up for longer than is promised
            break
    assert answer.startswith(b"HTTP/1.0 200 OK\r\n")
    assert b"gputax_proxy_info" in answer


@pytest.mark.parametrize(("silent", "most_s"), [(5, 2), (40, 10)])  # in turn it would be a second for each of them
def test_silent_readers_hold_no_other_reader_up(nursery: Any, silent: int, most_s: float) -> None:
    proxy = nursery.proxy()
    with ExitStack() as readers:
        connected = [readers.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(silent)]
        for reader in connected:
            reader.settimeout(20)
            reader.connect(f"{proxy.socket}.status")
        begun = time.monotonic()
        for _ in range(3):
            assert json.loads(proxy.ask_status(b"\n"))["pid"] == proxy.process.pid
            assert proxy.ask_status(b"GET /metrics HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.0 200 OK\r\n")
            assert proxy.status()["pid"] == proxy.process.pid
        assert time.monotonic() - begun < most_s
        assert {reader.recv(1) for reader in connected} == {b"{"}, "who says nothing gets JSON"


def test_a_slow_reader_of_the_status_holds_nobody_up(nursery: Any) -> None:
    proxy = nursery.proxy()
    program = """
import time
import gpu
from gpu import *
print("ready", flush=True)
input()
begun = time.monotonic()
gpu.begin(); ok(gpu.driver.cuCtxSynchronize())
print(time.monotonic() - begun)
"""
    client = nursery.start(program, proxy.environment())
    assert client.stdout.readline() == "ready\n"
    with ExitStack() as readers:
        for _ in range(5):  # they connect and neither speak nor read
            readers.enter_context(socket.socket(socket.AF_UNIX)).connect(f"{proxy.socket}.status")
        took, errors = client.communicate("\n", timeout=20)
        assert client.returncode == 0, errors
        assert float(took) < 2
        assert proxy.status()["pid"] == proxy.process.pid


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
