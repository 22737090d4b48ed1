"""What the GPU proxy costs on the software device: direct and proxied runs of one C program, in alternation.

The program (`native/tests/op_bench.c`) knows nothing of Python, so that the figures are the protocol's own. None of
them is a GPU's: the device computes on the CPU, and its throttles stand for a device of about 140 µs an operation.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.intervals import median_interval
from gputax.environments.driver import LIBVGPU, SOFTWARE_DEVICE, native_directory, native_part
from gputax.environments.proxy import (
    SOCKET_VARIABLE,
    TRANSPORT_VARIABLE,
    ProxyAddress,
    ProxyOptions,
    own_proxy,
)

KERNEL = Path("src/gputax/worker/workloads/micro.ptx")
# Interpreted, the kernel takes about 10 of its 125 us. Compiled, one operation in the middle of a block would wait for
# the compiler (1.6 s seen) or for its code from the cache, which is in the mean and has nothing to do with the proxy.
THROTTLED = {
    "GPUTAX_SOFT_KERNEL_US": "125",
    "GPUTAX_SOFT_COPY_GBPS": "4.5",
    "GPUTAX_SOFT_COMPILE": "never",
}
PAIRS = 25
CONTROL_PAIRS = 15
BLOCK_S = 1.0
TENANTS = 4
TENANT_PAIRS = 7
TENANT_BLOCK_S = 3.0
TENANT_STARTS = 31


def proxy_operation() -> dict[str, Any]:
    """An operation and an empty call through shared memory."""
    return _operation("shm", "proxy_op")


def proxy_operation_by_socket() -> dict[str, Any]:
    """The same through the Unix socket, for contrast."""
    return _operation("unix-socket", "proxy_op_unix_socket")


def proxy_launch() -> dict[str, Any]:
    """What posting a launch costs the tenant; and a launch on the device itself, which computes before it returns."""
    with _proxy({}) as address:
        pairs = _pairs({}, address, "shm", "launch", PAIRS)
    launches_us = [proxied["launch"]["p50_us"] for _, proxied in pairs]
    return {
        "proxy_launch_us": statistics.median(launches_us),
        "proxy_launch_us_ci95": median_interval(launches_us),
        "proxy_launch_direct_us": statistics.median(direct["launch"]["p50_us"] for direct, _ in pairs),
    }


def proxy_bandwidth() -> dict[str, Any]:
    """Copies of 100 MB, on a device that copies at 4.5 GB/s and on one that copies as fast as memory."""
    return {
        **_bandwidth(THROTTLED, "proxy_bandwidth_ratio"),
        **_bandwidth({}, "proxy_bandwidth_ratio_unthrottled"),
    }


def _operation(transport: str, key: str) -> dict[str, Any]:
    """Return by how much an operation of about 140 µs grows, and what an answered empty call takes."""
    with _proxy(THROTTLED) as address:
        pairs = _pairs(THROTTLED, address, transport, "op,call", PAIRS)
    overheads = [proxied["op"]["p50_us"] / direct["op"]["p50_us"] - 1 for direct, proxied in pairs]
    means = [proxied["op"]["mean_us"] / direct["op"]["mean_us"] - 1 for direct, proxied in pairs]
    calls_us = [proxied["call"]["p50_us"] for _, proxied in pairs]
    call_key = "proxy_call_us" if transport == "shm" else f"{key}_call_us"
    return {
        **(_second_core(key) if transport == "shm" else {}),
        f"{key}_p50_overhead": statistics.median(overheads),
        f"{key}_p50_overhead_ci95": median_interval(overheads),
        f"{key}_mean_overhead": statistics.median(means),
        f"{key}_mean_overhead_ci95": median_interval(means),
        f"{key}_direct_p50_us": statistics.median(direct["op"]["p50_us"] for direct, _ in pairs),
        call_key: statistics.median(calls_us),
        f"{call_key}_ci95": median_interval(calls_us),
    }


SPIN = "while True: pass"


def _second_core(key: str) -> dict[str, Any]:
    """Return by how much the mean of a direct operation grows while another process keeps a second core busy.

    Tenant and worker are two threads that do not sleep, and the host of a virtual machine may take time from a guest
    that uses all its cores. That part of `mean_overhead` has nothing to do with the proxy: 0.2 % when measured.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return {}
    means = []
    for number in range(CONTROL_PAIRS):
        seen = {}
        for busy in (True, False) if number % 2 else (False, True):
            with contextlib.ExitStack() as stack:
                if busy:
                    stack.enter_context(_ended(subprocess.Popen([sys.executable, "-c", SPIN])))
                seen[busy] = run_operations(SOFTWARE_DEVICE, THROTTLED, BLOCK_S, "op")["op"]["mean_us"]
        means.append(seen[True] / seen[False] - 1)
    return {
        f"{key}_second_core_mean_overhead": statistics.median(means),
        f"{key}_second_core_mean_overhead_ci95": median_interval(means),
    }


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _bandwidth(throttles: Mapping[str, str], key: str) -> dict[str, Any]:
    """Return the worse direction's bandwidth at 100 MB, proxied over direct."""
    with _proxy(throttles) as address:
        pairs = _pairs(throttles, address, "shm", "copy", PAIRS)
    ratios = {way: [proxied[way] / direct[way] for direct, proxied in pairs] for way in ("h2d_gbps", "d2h_gbps")}
    worse = min(ratios, key=lambda way: statistics.median(ratios[way]))
    return {
        key: statistics.median(ratios[worse]),
        f"{key}_ci95": median_interval(ratios[worse]),
        **{f"{key}_{way}": statistics.median(ratios[way]) for way in ratios},
    }


def proxy_tenants() -> dict[str, Any]:
    """Return the operations per second of four tenants together over one tenant's alone, on the same shared device."""
    ratios = []
    with _proxy(THROTTLED) as address, ThreadPoolExecutor(TENANTS) as pool:

        def together(count: int) -> float:
            runs = [
                pool.submit(run_operations, LIBVGPU, connected(address, "shm"), TENANT_BLOCK_S, "op")
                for _ in range(count)
            ]
            return sum(float(run.result()["op"]["per_s"]) for run in runs)

        for _ in range(TENANT_PAIRS):
            alone = together(1)
            ratios.append(together(TENANTS) / alone)
    return {"proxy_tenants_ratio": statistics.median(ratios), "proxy_tenants_ratio_ci95": median_interval(ratios)}


CONNECT = """
import ctypes, sys, time
library = ctypes.CDLL(sys.argv[1])
begun = time.perf_counter()
assert library.cuInit(0) == 0
print((time.perf_counter() - begun) * 1e3, flush=True)
sys.stdin.readline()
"""


def proxy_tenant() -> dict[str, Any]:
    """Return how long a tenant waits for its worker when it connects, and the resident memory of an idle worker."""
    starts_ms, memory_mb = [], []
    words = [sys.executable, "-c", CONNECT, str(native_part(LIBVGPU))]
    with _proxy({}) as address:
        for _ in range(TENANT_STARTS):
            variables = {**os.environ, **connected(address, "shm")}
            with subprocess.Popen(
                words, env=variables, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            ) as tenant:
                assert tenant.stdout
                starts_ms.append(float(tenant.stdout.readline()))
                (worker,) = [each["worker"] for each in address.status()["tenants"] if each["pid"] == tenant.pid]
                pages = int(Path(f"/proc/{worker}/statm").read_text().split()[1])
                memory_mb.append(pages * os.sysconf("SC_PAGESIZE") / 2**20)
                tenant.communicate("\n", timeout=20)
    return {
        "proxy_tenant_start_ms": statistics.median(starts_ms),
        "proxy_tenant_start_ms_ci95": median_interval(starts_ms),
        "proxy_tenant_memory_mb": max(memory_mb),
    }


def _pairs(
    throttles: Mapping[str, str], address: ProxyAddress, transport: str, what: str, count: int
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    pairs = []
    for number in range(count):
        runs = {
            "direct": lambda: run_operations(SOFTWARE_DEVICE, throttles, BLOCK_S, what),
            "proxied": lambda: run_operations(LIBVGPU, connected(address, transport), BLOCK_S, what),
        }
        order = ("direct", "proxied") if number % 2 else ("proxied", "direct")
        seen = {name: runs[name]() for name in order}
        pairs.append((seen["direct"], seen["proxied"]))
    return pairs


def run_operations(library: str, variables: Mapping[str, str], seconds: float, what: str) -> dict[str, Any]:
    """Return what `op_bench` measured on one of our libraries."""
    program = native_directory() / "tests" / "op_bench"
    words = [str(program), str(native_part(library)), str(KERNEL), str(seconds), what]
    done = subprocess.run(words, env={**os.environ, **variables}, stdout=subprocess.PIPE, check=True, timeout=120)
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def connected(address: ProxyAddress, transport: str) -> dict[str, str]:
    """Return the variables of a tenant of this proxy."""
    return {SOCKET_VARIABLE: str(address.socket), TRANSPORT_VARIABLE: transport}


def _proxy(throttles: Mapping[str, str]) -> Any:
    return own_proxy(ProxyOptions(native_part(SOFTWARE_DEVICE)), {**os.environ, **throttles})
