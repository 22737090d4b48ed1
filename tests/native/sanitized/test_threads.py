"""Broker, worker, software device and libvgpu with ThreadSanitizer: their threads and what processes share do not race.

Beside readers and evictions tenants use the ordinary libvgpu.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.native.plain.device import test_null_kernels as null_kernels
from tests.native.plain.runtime.test_cudart import FATBIN, MINORS, libcudart
from tests.native.proxies import PROGRAMS, Nursery, Proxy

KERNELS = Path(__file__).parents[3] / "native" / "kernels"
PARTS = ("gputax-proxy", "software/libcuda.so.1", "vgpu/libcuda.so.1", "tests/device_suite")
REPORT = "ThreadSanitizer"
STEADY = """
import gpu
from gpu import *
import numpy as np
gpu.begin()
numbers = np.arange(5000, dtype=np.uint32)
there = to_device(numbers)
print(describe()["tenant"], flush=True)
while True:
    assert (from_device(there, numbers) == numbers).all()
"""


@pytest.fixture(scope="session")
def thread_build(native_make: Callable[..., Path]) -> Path:
    return native_make(*(f"build/thread/{part}" for part in PARTS), sanitize="thread")


ON_THE_RUNTIME: dict[str, tuple[str, ...]] = {
    "tables": (),
    "fatbins": (str(FATBIN), "50"),
    "frameworks": (),
    "capture": (),
    "cooperative": (),
    "mapped": (),
}
"""Programs of tests/native/programs, and their words."""


@pytest.fixture
def threads(tmp_path: Path, thread_build: Path) -> Iterator[Nursery]:
    made = Nursery(tmp_path, thread_build)
    yield made
    made.end()


def test_the_c_suite_of_the_device_has_no_race(thread_build: Path) -> None:
    words = [str(thread_build / "tests" / "device_suite"), str(KERNELS)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert REPORT not in done.stderr


def test_a_broker_with_readers_evictions_and_killed_workers_has_no_race(threads: Nursery, native_build: Path) -> None:
    proxy = dataclasses.replace(threads.proxy("--places", "2", "--call-s", "60"), library=native_build / "vgpu")
    over = threading.Event()

    def read_status() -> None:
        while not over.is_set():
            proxy.status()
            proxy.ask_status(b"GET /metrics HTTP/1.0\r\n\r\n")

    readers = [threading.Thread(target=read_status) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        for round_ in range(4):
            _one_round(threads, proxy, round_)
        threads.run(PROGRAMS / "suite.py", proxy.environment(), "1")
        threads.run(PROGRAMS / "graphs.py", proxy.environment())
    finally:
        over.set()
        for reader in readers:
            reader.join()
    _ends_without_report(proxy)


@pytest.mark.parametrize("behind", ["device", "proxy"])
def test_programs_on_the_runtime_have_no_race(threads: Nursery, behind: str) -> None:
    """The library in the program has the sanitizer too; its report is another exit code."""
    proxy = threads.proxy() if behind == "proxy" else None
    environment = threads.direct() if proxy is None else proxy.environment()
    environment |= with_the_sanitizer() | {"GPUTAX_CUDA_RUNTIME": "1"}
    for program, words in ON_THE_RUNTIME.items():
        threads.run(PROGRAMS / f"{program}.py", environment, *words)
    for minor in (MINORS[0], MINORS[-1]):
        threads.run(PROGRAMS / "runtime.py", environment, str(libcudart(minor)), str(FATBIN))
    if proxy is not None:
        _ends_without_report(proxy)


@pytest.mark.parametrize("behind", ["device", "proxy"])
def test_null_kernels_have_no_race(threads: Nursery, behind: str) -> None:
    null = {"GPUTAX_SOFT_KERNELS": "null"}
    proxy = threads.proxy(device=null) if behind == "proxy" else None
    environment = threads.direct() | null if proxy is None else proxy.environment()
    words = (str(null_kernels.IMAGE), *null_kernels.NAMES)
    output = threads.run(PROGRAMS / "null_kernels.py", environment | with_the_sanitizer(), *words)
    null_kernels.check(json.loads(output))
    if proxy is not None:
        _ends_without_report(proxy)


def with_the_sanitizer() -> dict[str, str]:
    """What Python needs to load a library with ThreadSanitizer."""
    found = subprocess.run(["gcc", "-print-file-name=libtsan.so"], capture_output=True, text=True, check=True)
    return {"LD_PRELOAD": found.stdout.strip()}


def _ends_without_report(proxy: Proxy) -> None:
    code, said = proxy.stop(), proxy.process.stderr
    assert said is not None
    text = said.read()
    assert code == 0, text[-4000:]
    assert REPORT not in text, text[-4000:]


def _one_round(threads: Nursery, proxy: Proxy, round_: int) -> None:
    """Three tenants at once; one is evicted, one loses its worker, one is killed."""
    tenants = [threads.start(STEADY, proxy.environment("shm" if round_ % 2 else "unix-socket")) for _ in range(3)]
    numbers = [int(each.stdout.readline()) if each.stdout else 0 for each in tenants]
    workers = {each["id"]: each["worker"] for each in proxy.status()["tenants"]}
    proxy.ask_status(f"evict {numbers[0]}\n".encode())
    os.kill(workers[numbers[1]], signal.SIGKILL)
    tenants[2].kill()
    for each in tenants:
        each.communicate(timeout=60)
    proxy.wait_for(lambda status: not status["tenants"])
