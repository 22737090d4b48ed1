"""One worker process for each tenant: what it has, who ends it, and that its end is nobody else's."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.native.proxies import CONTEXT_BYTES

ENDED_S = 5.0
STEADY = """
import gpu, time
from gpu import *
from cuda.bindings import driver as cu
import numpy as np
gpu.begin()
array = np.arange(5000, dtype=np.int32)
pointer = to_device(array)
print(describe()["tenant"], flush=True)
try:
    while True:
        assert (from_device(pointer, array) == array).all()
        time.sleep(0.005)
except CudaError as error:
    print(time.monotonic(), error, flush=True)
"""
WAITING = """
import sys
import gpu
from gpu import *
from cuda.bindings import driver as cu
gpu.begin()
held = [ok(cu.cuMemAlloc(int(size))) for size in sys.argv[1:]]
print(describe()["tenant"], flush=True)
sys.stdin.readline()
"""
ASKS = """
import sys
import gpu
from gpu import *
from cuda.bindings import driver as cu
gpu.begin()
print(error(cu.cuMemAlloc(int(sys.argv[1]))), *ok(cu.cuMemGetInfo()))
"""
MIB = 1 << 20


def start(nursery: Any, program: str, proxy: Any, *arguments: str) -> tuple[subprocess.Popen[str], int]:
    """Start a tenant that prints its number first."""
    process = nursery.start(program, proxy.environment(), *arguments)
    return process, int(process.stdout.readline())


def worker_of(proxy: Any, tenant: int) -> int:
    (found,) = [each["worker"] for each in proxy.status()["tenants"] if each["id"] == tenant]
    return int(found)


def ended(proxy: Any, tenant: int) -> str:
    """How a tenant ended; waits for it."""

    def find(status: dict[str, Any]) -> str:
        return next((str(each["ended"]) for each in status["ended_tenants"] if each["id"] == tenant), "")

    return find(proxy.wait_for(lambda status: bool(find(status)), seconds=ENDED_S))


def wait_until_gone(pid: int) -> None:
    until = time.monotonic() + ENDED_S
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < until, f"{pid} lives on"
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])  # a crash, and the out-of-memory killer
def test_the_death_of_a_worker_is_an_error_of_its_tenant_alone(nursery: Any, number: int) -> None:
    proxy = nursery.proxy()
    victim, tenant = start(nursery, STEADY, proxy)
    other, another = start(nursery, STEADY, proxy)
    assert worker_of(proxy, tenant) != worker_of(proxy, another)
    moment = time.monotonic()
    os.kill(worker_of(proxy, tenant), number)
    output, errors = victim.communicate(timeout=20)
    told, error = output.split()
    assert error == "CUDA_ERROR_SYSTEM_NOT_READY", errors
    assert float(told) - moment < 2
    assert ended(proxy, tenant) == f"its worker was killed by signal {number}"
    calls = proxy.status()["tenants"][0]["calls"]
    time.sleep(0.2)
    assert proxy.status()["tenants"][0]["calls"] != calls, "the other one goes on"
    assert other.poll() is None
    assert proxy.status()["totals"]["memory_bytes"] == 40 * 512 + CONTEXT_BYTES  # 20,000 bytes, in whole pieces
    nursery.run("import gpu; gpu.begin()", proxy.environment())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_broker_that_ends_leaves_no_worker(nursery: Any, number: int) -> None:
    proxy = nursery.proxy()
    tenants = [start(nursery, WAITING, proxy)[1] for _ in range(3)]
    workers = [worker_of(proxy, tenant) for tenant in tenants]
    proxy.process.send_signal(number)
    proxy.process.wait(20)
    for worker in workers:
        wait_until_gone(worker)


def test_a_worker_has_its_own_descriptors_and_variables_only(nursery: Any) -> None:
    proxy = nursery.proxy(device={"SECRET_TOKEN": "x", "GPUTAX_SOFT_TIMEOUT_S": "7"})
    _, tenant = start(nursery, WAITING, proxy)
    worker = Path(f"/proc/{worker_of(proxy, tenant)}")
    variables = (worker / "environ").read_bytes()
    assert b"SECRET_TOKEN" not in variables
    opened = sorted(str(each.readlink()) for each in (worker / "fd").iterdir() if int(each.name) > 2)
    kinds = [each.replace("anon_inode:[pidfd]", "pidfd:").split(":")[0] for each in opened]
    assert kinds == ["/memfd", "/memfd", "/memfd", "pidfd", "pipe", "socket", "socket"], opened
    assert (worker / "comm").read_text() == "gputax-worker\n"


def test_an_evicted_tenant_gets_an_error_and_the_others_nothing(nursery: Any) -> None:
    proxy = nursery.proxy()
    victim, tenant = start(nursery, STEADY, proxy)
    other, _ = start(nursery, STEADY, proxy)
    assert json.loads(proxy.ask_status(b"evict 77\n")) == {"error": "there is no tenant 77"}
    assert json.loads(proxy.ask_status(f"evict {tenant}\n".encode())) == {"evicted": tenant}
    assert "CUDA_ERROR_SYSTEM_NOT_READY" in victim.communicate(timeout=20)[0]
    assert ended(proxy, tenant) == "evicted"
    assert other.poll() is None


def as_nobody(request: str, path: str) -> Any:
    """Ask the status socket as another user."""
    code = """
import os, socket, sys
os.setgid(65534); os.setuid(65534)
with socket.socket(socket.AF_UNIX) as reader:
    reader.connect(sys.argv[1])
    reader.sendall(sys.argv[2].encode())
    print(b"".join(iter(lambda: reader.recv(65536), b"")).decode())
"""
    words = [sys.executable, "-c", code, path, request]
    return json.loads(subprocess.run(words, capture_output=True, text=True, check=True, timeout=20).stdout)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user to try as")
def test_another_user_sees_none_of_the_tenants_and_evicts_none(nursery: Any, tmp_path: Path) -> None:
    proxy = nursery.proxy("--mode", "0666")
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    _, tenant = start(nursery, WAITING, proxy)
    path = f"{proxy.socket}.status"
    seen = as_nobody("\n", path)
    assert (seen["tenants"], seen["totals"]["calls"], seen["device"]) == ([], {}, "gputax software device")
    assert "error" in as_nobody(f"evict {tenant}\n", path)
    assert len(proxy.status()["tenants"]) == 1


def test_the_memory_of_a_tenant_is_that_of_all_its_connections(nursery: Any) -> None:
    proxy = nursery.proxy("--memory-mb", "64")
    first, tenant = start(nursery, WAITING, proxy, str(40 * MIB))
    left = f"{24 * MIB - 2 * CONTEXT_BYTES} {64 * MIB}\n"
    assert nursery.run(ASKS, proxy.environment(), str(25 * MIB)) == f"CUDA_ERROR_OUT_OF_MEMORY {left}"
    os.kill(worker_of(proxy, tenant), signal.SIGKILL)  # it cannot give anything back itself
    ended(proxy, tenant)
    assert nursery.run(ASKS, proxy.environment(), str(60 * MIB)).startswith("CUDA_SUCCESS")
    first.kill()


def test_with_process_as_identity_each_process_has_a_quota_of_its_own(nursery: Any) -> None:
    proxy = nursery.proxy("--memory-mb", "64", "--identity", "process")
    start(nursery, WAITING, proxy, str(40 * MIB))
    assert nursery.run(ASKS, proxy.environment(), str(50 * MIB)).startswith("CUDA_SUCCESS")


def test_streams_and_modules_are_counted_over_all_connections(nursery: Any) -> None:
    proxy = nursery.proxy("--streams", "3", "--modules", "2")
    program = """
import sys
import gpu
from gpu import *
from cuda.bindings import driver as cu
gpu.begin()
print([error(cu.cuStreamCreate(0)) for _ in range(2)].count("CUDA_SUCCESS"))
print([error(cu.cuModuleLoadData(image("vector"))) for _ in range(2)].count("CUDA_SUCCESS"), flush=True)
sys.stdin.readline()
"""
    first = nursery.start(program, proxy.environment())
    assert [first.stdout.readline() for _ in range(2)] == ["2\n", "2\n"]
    second = nursery.start(program, proxy.environment())
    assert [second.stdout.readline() for _ in range(2)] == ["1\n", "0\n"]
    first.communicate("\n", timeout=20)
    proxy.wait_for(lambda status: len(status["tenants"]) == 1)
    third = nursery.start(program, proxy.environment())
    assert [third.stdout.readline() for _ in range(2)] == ["2\n", "2\n"]


def test_a_tenant_has_no_more_connections_than_it_may(nursery: Any) -> None:
    proxy = nursery.proxy("--connections", "2")
    start(nursery, WAITING, proxy)
    start(nursery, WAITING, proxy)
    refused = nursery.start(WAITING, proxy.environment())
    assert "all the connections that it may have" in refused.communicate(timeout=20)[1]
    assert len(proxy.status()["tenants"]) == 2


def test_who_connects_and_hangs_up_in_a_loop_gets_few_workers_and_the_others_theirs(nursery: Any) -> None:
    proxy = nursery.proxy("--identity", "process")

    def visit() -> None:
        with socket.socket(socket.AF_UNIX) as visitor:
            visitor.connect(str(proxy.socket))

    begun, asked = time.monotonic(), 1000
    for _ in range(asked):
        visit()
    victim, _ = start(nursery, STEADY, proxy)
    # None of them is in the status before its greeting, and each worker notices for itself that nobody is there.
    started = settled(lambda: int(proxy.status()["totals"]["ended"]))
    assert 128 <= started <= 128 + 50 * (time.monotonic() - begun)
    assert started < asked
    assert victim.poll() is None
    visit()  # a moment later it is served again
    assert settled(lambda: int(proxy.status()["totals"]["ended"])) == started + 1


def settled(read: Callable[[], int]) -> int:
    """A number that has not changed for half a second."""
    value, since = read(), time.monotonic()
    while time.monotonic() - since < 0.5:
        time.sleep(0.05)
        if (now := read()) != value:
            value, since = now, time.monotonic()
    return value


def test_a_silent_tenant_is_ended_and_a_busy_one_is_not(nursery: Any) -> None:
    proxy = nursery.proxy("--idle-s", "1")
    busy, _ = start(nursery, STEADY, proxy)
    _, silent = start(nursery, WAITING, proxy)
    assert ended(proxy, silent) == "idle for too long"
    assert busy.poll() is None


ENDLESS = """
import gpu
from gpu import *
from cuda.bindings import driver as cu
gpu.begin()
text = ".version 8.0\\n.target sm_80\\n.address_size 64\\n.visible .entry k() { again: bra again; }\\0"
kernel = function(ok(cu.cuModuleLoadData(text.encode())), "k")
print(describe()["tenant"], flush=True)
launch(kernel, (1,), (1,), ())
print(error(cu.cuCtxSynchronize()))
"""


def test_a_kernel_without_an_end_ends_its_tenant_after_the_time_of_a_call(nursery: Any) -> None:
    proxy = nursery.proxy("--call-s", "1", device={"GPUTAX_SOFT_TIMEOUT_S": "60"})
    other, _ = start(nursery, STEADY, proxy)
    endless, tenant = start(nursery, ENDLESS, proxy)
    begun = time.monotonic()
    assert endless.communicate(timeout=20)[0] == "CUDA_ERROR_SYSTEM_NOT_READY\n"
    assert time.monotonic() - begun < 4
    assert ended(proxy, tenant) == "a call took too long"
    assert other.poll() is None


def test_a_worker_gains_no_privileges_and_leaves_no_dump(nursery: Any) -> None:
    proxy = nursery.proxy()
    _, tenant = start(nursery, WAITING, proxy)
    (seen,) = proxy.status()["tenants"]
    assert {"no_new_privs", "not_dumpable", "no_core", "descriptor_limit"} <= set(seen["confinement"])
    assert seen["confinement"] == proxy.status()["confinement"] == proxy.ready["confinement"]
    worker = Path(f"/proc/{worker_of(proxy, tenant)}")
    assert "NoNewPrivs:\t1\n" in (worker / "status").read_text()
    limits = {line[:26].strip(): line[26:].split()[:2] for line in (worker / "limits").read_text().splitlines()}
    assert limits["Max core file size"] == ["0", "0"]
    assert limits["Max open files"] == ["64", "64"]


def test_a_tenant_that_has_left_does_not_count_as_active(nursery: Any) -> None:
    """Counted by its last call alone it would take the cores of the next one for 100 ms. The fastest of five counts.

    Its worker, which would give the seat back, is stopped.
    """
    proxy = nursery.proxy()
    waited_s = []
    for _ in range(5):
        tenant, number = start(nursery, STEADY, proxy)
        worker = worker_of(proxy, number)
        proxy.wait_for(lambda status: status["active_tenants"] == 1)
        os.kill(worker, signal.SIGSTOP)
        tenant.kill()
        killed = time.monotonic()
        proxy.wait_for(lambda status: status["active_tenants"] == 0)
        waited_s.append(time.monotonic() - killed)
        os.kill(worker, signal.SIGKILL)
    assert min(waited_s) < 0.08
