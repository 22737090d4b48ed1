"""Order, asynchrony and time on the software device; the throttles and how they show."""

from __future__ import annotations

import json
from typing import Any

import pytest

BEGIN = """
import ctypes, json, threading, time
import numpy as np
from device import *

def quantile(values, q):
    return sorted(values)[int(len(values) * q)]
"""


def answers(on_software: Any, program: str, **settings: str) -> Any:
    return json.loads(on_software(BEGIN + program, **settings).stdout)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "gputax software device"),
        ({"GPUTAX_SOFT_KERNEL_US": "125"}, "gputax software device [kernel 125 us]"),
        ({"GPUTAX_SOFT_COPY_GBPS": "4.5"}, "gputax software device [copies 4.5 GB/s]"),
        (
            {"GPUTAX_SOFT_KERNEL_US": "125", "GPUTAX_SOFT_COPY_GBPS": "4.5"},
            "gputax software device [kernel 125 us, copies 4.5 GB/s]",
        ),
    ],
)
def test_the_name_tells_the_throttles(on_software: Any, settings: dict[str, str], name: str) -> None:
    assert answers(on_software, "start(); print(json.dumps(device_name()))", **settings) == name


def test_launches_return_at_once_and_synchronising_waits(on_software: Any) -> None:
    launch_ms, sync_ms, ready, later = answers(
        on_software,
        """
start()
kernel = load("micro").kernel("nothing")
launch(kernel, (1,), (1,)); check(driver.cuCtxSynchronize())
begin = time.perf_counter()
for _ in range(5):
    launch(kernel, (1,), (1,))
launched = time.perf_counter()
ready = error_of(driver.cuStreamQuery(0))
check(driver.cuCtxSynchronize())
end = time.perf_counter()
print(json.dumps([(launched - begin) * 1e3, (end - begin) * 1e3, ready, error_of(driver.cuStreamQuery(0))]))
""",
        GPUTAX_SOFT_KERNEL_US="40000",
    )
    assert sync_ms >= 200
    assert launch_ms < 150, "five launches of 40 ms each must not take their time on the host"
    assert (ready, later) == ("CUDA_ERROR_NOT_READY", "CUDA_SUCCESS")


@pytest.mark.parametrize("flags", [0, 4])
def test_a_throttled_kernel_takes_its_time(on_software: Any, flags: int) -> None:
    times = answers(
        on_software,
        f"""
start({flags})
kernel = load("micro").kernel("nothing")
times = []
for _ in range(60):
    begin = time.perf_counter()
    launch(kernel, (1,), (1,)); check(driver.cuCtxSynchronize())
    times.append((time.perf_counter() - begin) * 1e6)
print(json.dumps([min(times), quantile(times, 0.1)]))
""",
        GPUTAX_SOFT_KERNEL_US="500",
    )
    assert times[0] >= 500
    assert times[1] < 1500


@pytest.mark.parametrize("direction", ["HtoD", "DtoH"])
def test_throttled_copies_go_at_their_rate(on_software: Any, direction: str) -> None:
    arguments = "p, host.ctypes.data" if direction == "HtoD" else "host.ctypes.data, p"
    times = answers(
        on_software,
        f"""
start()
size = 2_000_000
p, host = int(check(driver.cuMemAlloc(size))), np.ones(size, np.uint8)
times = []
for _ in range(12):
    begin = time.perf_counter()
    check(driver.cuMemcpy{direction}({arguments}, size))
    times.append((time.perf_counter() - begin) * 1e3)
submitted = []
for _ in range(5):
    begin = time.perf_counter()
    check(driver.cuMemcpy{direction}Async({arguments}, size, 0))
    submitted.append((time.perf_counter() - begin) * 1e3)
    check(driver.cuCtxSynchronize())
print(json.dumps([min(times), quantile(times, 0.1), min(submitted)]))
""",
        GPUTAX_SOFT_COPY_GBPS="0.1",
    )
    assert times[0] >= 20
    assert times[1] < 40
    assert times[2] < 18, "an asynchronous copy returns before its time has passed"


def test_a_copy_waits_for_the_kernel_before_it(on_software: Any) -> None:
    waited, value = answers(
        on_software,
        """
start()
out = Buffer(np.zeros(64, np.float32)); a = Buffer(np.ones(64, np.float32))
kernel = load("vector").kernel("vector_add")
begin = time.perf_counter()
launch(kernel, (1,), (64,), a, a, out, 64)
value = float(out.read()[5])
print(json.dumps([(time.perf_counter() - begin) * 1e3, value]))
""",
        GPUTAX_SOFT_KERNEL_US="30000",
    )
    assert waited >= 30
    assert value == 2.0


def test_events_measure_the_timeline(on_software: Any) -> None:
    elapsed, early, unrecorded, no_timing = answers(
        on_software,
        """
start()
stream = check(driver.cuStreamCreate(1))
kernel = load("micro").kernel("nothing")
first, second, never = (check(driver.cuEventCreate(0)) for _ in range(3))
untimed = check(driver.cuEventCreate(2))
check(driver.cuEventRecord(first, stream))
for _ in range(3):
    launch(kernel, (1,), (1,), stream=stream)
check(driver.cuEventRecord(second, stream)); check(driver.cuEventRecord(untimed, stream))
early = [error_of(driver.cuEventQuery(second)), error_of(driver.cuEventElapsedTime(first, second))]
check(driver.cuEventSynchronize(second))
bad = [error_of(driver.cuEventElapsedTime(first, event)) for event in (never, untimed)]
print(json.dumps([check(driver.cuEventElapsedTime(first, second)), early, *bad]))
""",
        GPUTAX_SOFT_KERNEL_US="20000",
    )
    assert 60 <= elapsed < 120
    assert early == ["CUDA_ERROR_NOT_READY"] * 2
    assert unrecorded == no_timing == "CUDA_ERROR_INVALID_HANDLE"


def test_streams_and_the_default_stream_keep_their_order(on_software: Any) -> None:
    found = answers(
        on_software,
        """
start()
one, two = check(driver.cuStreamCreate(0)), check(driver.cuStreamCreate(0))
kernel = load("vector").kernel("vector_add")
x, ones = Buffer(np.zeros(32, np.float32)), Buffer(np.ones(32, np.float32))
event = check(driver.cuEventCreate(0))
begin = time.perf_counter()
for stream in (one, 0, two, 0, one):
    launch(kernel, (1,), (32,), x, ones, x, 32, stream=stream)
check(driver.cuEventRecord(event, one))
check(driver.cuStreamWaitEvent(two, event, 0))
launch(kernel, (1,), (32,), x, ones, x, 32, stream=two)
check(driver.cuStreamSynchronize(two))
took = time.perf_counter() - begin
print(json.dumps([x.read().tolist(), took * 1e3]))
""",
        GPUTAX_SOFT_KERNEL_US="10000",
    )
    assert found[0] == [6.0] * 32
    assert found[1] >= 60, "the last of six kernels of 10 ms each waits for the work of the others"


def test_contexts_of_one_process_share_the_timeline(on_software: Any) -> None:
    took = answers(
        on_software,
        """
def tenant():
    start(4)
    kernel = load("micro").kernel("nothing")
    barrier.wait()
    begun.append(time.perf_counter())
    for _ in range(5):
        launch(kernel, (1,), (1,)); check(driver.cuCtxSynchronize())
check(driver.cuInit(0))
begun = []
barrier = threading.Barrier(2)
threads = [threading.Thread(target=tenant) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps((time.perf_counter() - min(begun)) * 1e3))
""",
        GPUTAX_SOFT_KERNEL_US="10000",
    )
    assert took >= 100, "ten kernels of 10 ms each, one after another"


def test_memory_is_cleared_without_holding_up_another_context(on_software: Any) -> None:
    """With one lock over all of it, a copy of another context waits for as long as the clearing takes, every time."""
    program = """
import json, threading, time
import numpy as np
from device import *
start()
first = check(driver.cuCtxCreate(None, 0, 0))
second = check(driver.cuCtxCreate(None, 0, 0))
small, large_bytes, frees, copies, over = np.zeros(64, np.uint8), 448 << 20, [], [], threading.Event()

def free_large():
    pointer = check(driver.cuMemAlloc(large_bytes))
    check(driver.cuMemsetD8(pointer, 1, large_bytes))
    begun = time.monotonic()
    check(driver.cuMemFree(pointer))
    return begun, time.monotonic()

def free_often():
    check(driver.cuCtxSetCurrent(first))
    for _ in range(8):
        frees.append(free_large())
    over.set()

check(driver.cuCtxSetCurrent(first))
alone = min(end - begin for begin, end in (free_large() for _ in range(4)))
check(driver.cuCtxSetCurrent(second))
there = check(driver.cuMemAlloc(64))
thread = threading.Thread(target=free_often)
thread.start()
while not over.is_set():
    begun = time.monotonic()
    check(driver.cuMemcpyDtoH(small.ctypes.data, there, 64))
    copies.append((begun, time.monotonic()))
thread.join()
longest = [max(end - begin for begin, end in copies if begin < stop and end > start) for start, stop in frees]
print(json.dumps([alone, sorted(longest)]))
"""
    alone_s, longest_s = json.loads(on_software(program, GPUTAX_SOFT_MEMORY_MB="512").stdout)
    assert longest_s[0] < alone_s / 3, (alone_s, longest_s)
