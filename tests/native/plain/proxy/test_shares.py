"""Shares of places: a quota of memory, and on the software device a cap on its time that holds whatever the load."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.native.proxies import Proxy

MIB = 1 << 20
DEVICE_MB, KERNEL_US, LAUNCHES, BURST_S = 1024, 1000, 100, 0.020
LAUNCHING = f"""
import ctypes, json, time
import numpy as np
import gpu
gpu.begin()
touch = gpu.function(gpu.module("micro"), "touch")
buffers = [gpu.to_device(np.ones(32, dtype=np.float32)) for _ in range(3)]
values = (*((int(buffer), ctypes.c_void_p) for buffer in buffers), (3.0, ctypes.c_float))
gpu.launch(touch, (1,), (32,), values)
gpu.ok(gpu.driver.cuCtxSynchronize())
begun = time.monotonic()
for _ in range({LAUNCHES}):
    gpu.launch(touch, (1,), (32,), values)
gpu.ok(gpu.driver.cuCtxSynchronize())
seconds, memory = time.monotonic() - begun, gpu.ok(gpu.driver.cuDeviceTotalMem(0))
print(json.dumps({{"seconds": seconds, "memory": int(memory)}}), flush=True)
input()
"""


def at(proxy: Proxy, place: int) -> Proxy:
    return dataclasses.replace(proxy, socket=proxy.socket.parent / f"places/{place}" / proxy.socket.name)


def launched(nursery: Any, proxy: Proxy) -> dict[str, Any]:
    process = nursery.start(LAUNCHING, proxy.environment())
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    return dict(json.loads(line))


def test_each_place_has_its_share_of_memory_and_of_time(nursery: Any) -> None:
    proxy = nursery.proxy("--shares", "25,75", device={"GPUTAX_SOFT_KERNEL_US": str(KERNEL_US)})
    quarter = launched(nursery, at(proxy, 1))
    assert quarter["memory"] == pytest.approx(0.25 * DEVICE_MB * MIB, rel=0.001)
    # A busy machine makes it longer and never shorter.
    assert quarter["seconds"] > 4 * LAUNCHES * KERNEL_US / 1e6 - BURST_S - 0.005
    (tenant,) = at(proxy, 1).status()["tenants"]
    assert (tenant["time_percent"], tenant["memory_limit_bytes"]) == (25.0, quarter["memory"])
    most = launched(nursery, at(proxy, 2))
    assert most["memory"] == pytest.approx(0.75 * DEVICE_MB * MIB, rel=0.001)
    assert proxy.status()["places"] == 2


def test_the_operators_own_socket_has_no_share(nursery: Any) -> None:
    proxy = nursery.proxy("--shares", "25")
    assert launched(nursery, proxy)["memory"] == DEVICE_MB * MIB
    (tenant,) = proxy.status()["tenants"]
    assert "time_percent" not in tenant


@pytest.mark.parametrize("shares", ["", "0", "60,60", "x", "30,", "30;70", "-5", "nan", "inf"])
def test_other_shares_are_refused(nursery: Any, tmp_path: Path, shares: str) -> None:
    backend = nursery.build / "software" / "libcuda.so.1"
    words = ["--socket", str(tmp_path / "s"), "--backend", str(backend), "--shares", shares]
    done = subprocess.run([str(nursery.build / "gputax-proxy"), *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "together at most 100" in done.stderr
