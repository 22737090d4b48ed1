"""Programs on streams: order, events, functions of the program, default streams of threads."""

from __future__ import annotations

import ctypes
import threading
import time
from functools import partial
from typing import Any

import numpy as np

from gputax.worker.selftest.stage import Questions, Stage, digest, hold

NON_BLOCKING = 1
COUNT = 20_000
PER_THREAD = 2
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
SHORT_S = 0.02


def questions(stage: Stage) -> Questions:
    """Work on streams, whose order must hold, and what becomes of handles."""
    driver = stage.driver
    yield "work in order, across two streams", partial(_in_order, stage)
    yield "events", partial(_events, stage)
    yield "priorities and flags", partial(_flags, stage)
    yield "functions of the program keep the order", partial(_functions, stage)
    yield "a function must not call the driver for its stream", partial(_function_that_calls, stage)
    yield "every thread has a default stream of its own", partial(_per_thread, stage)
    stream, event = driver.made("cuStreamCreate", NON_BLOCKING), driver.made("cuEventCreate", 0)
    yield "an event that was never recorded", lambda: [
        driver.code("cuEventQuery", event), driver.code("cuEventSynchronize", event)
    ]  # fmt: skip
    yield "destroyed", lambda: [driver.code("cuStreamDestroy_v2", stream), driver.code("cuEventDestroy_v2", event)]


def _in_order(stage: Stage) -> list[Any]:
    driver = stage.driver
    add = stage.kernel("vector", "vector_add")
    first, second = (
        driver.made("cuStreamCreate", NON_BLOCKING),
        driver.made("cuStreamCreateWithPriority", NON_BLOCKING, -1),
    )
    done = driver.made("cuEventCreate", 0)
    values, back = np.arange(COUNT, dtype=np.float32), np.zeros(COUNT, np.float32)
    one, sums = stage.room(values.nbytes), stage.room(values.nbytes)
    driver("cuMemcpyHtoDAsync_v2", one, values.ctypes.data, values.nbytes, first)
    driver("cuMemsetD8Async", sums, 0, values.nbytes, first)
    for _ in range(5):
        stage.run(add, (79,), (256,), one, sums, sums, ctypes.c_int(COUNT), stream=first)
    driver("cuEventRecord", done, first)
    driver("cuStreamWaitEvent", second, done, 0)
    driver("cuMemcpyDtoHAsync_v2", back.ctypes.data, sums, back.nbytes, second)
    driver("cuStreamSynchronize", second)
    hold(bool((back == 5 * values).all()), "five additions gave another sum")
    codes = [driver.code("cuStreamQuery", stream) for stream in (first, second)]
    for stream in (first, second):
        driver("cuStreamDestroy_v2", stream)
    stage.free(one, sums)
    return [digest(back), codes]


def _events(stage: Stage) -> list[Any]:
    driver = stage.driver
    stream = driver.made("cuStreamCreate", NON_BLOCKING)
    begin, end, plain = (driver.made("cuEventCreate", flags) for flags in (0, 0, 2))  # 2: without times
    there = stage.room(1 << 20)
    driver("cuEventRecord", begin, stream)
    driver("cuMemsetD8Async", there, 1, 1 << 20, stream)
    driver("cuEventRecord", end, stream)
    driver("cuEventRecord", plain, stream)
    driver("cuEventSynchronize", end)
    driver("cuEventSynchronize", plain)
    elapsed = ctypes.c_float(-1)
    codes = [driver.code("cuEventElapsedTime", ctypes.byref(elapsed), begin, end)]
    hold(elapsed.value >= 0, "the end is before the beginning")
    codes += [driver.code("cuEventElapsedTime", ctypes.byref(elapsed), begin, plain)]
    codes += [driver.code("cuEventQuery", event) for event in (begin, end, plain)]
    stage.free(there)
    return codes


def _flags(stage: Stage) -> list[Any]:
    driver = stage.driver
    found: list[Any] = [driver.asked("cuStreamCreate", 77, kind=ctypes.c_uint64)[0]]
    for flags, priority in ((0, 0), (NON_BLOCKING, -1), (NON_BLOCKING, 100), (0, -100)):
        stream = driver.made("cuStreamCreateWithPriority", flags, priority)
        for name in ("cuStreamGetFlags", "cuStreamGetPriority"):
            value = ctypes.c_int()
            found.append([name, driver.code(name, stream, ctypes.byref(value)), value.value])
        driver("cuStreamDestroy_v2", stream)
    return found


def _functions(stage: Stage) -> list[Any]:
    driver, seen = stage.driver, list[tuple[int, float]]()
    stream = driver.made("cuStreamCreate", NON_BLOCKING)
    back = np.zeros(COUNT, np.float32)
    there = stage.room(back.nbytes)

    def call(data: int | None) -> None:
        time.sleep(SHORT_S)
        seen.append((data or 0, float(back[-1])))

    function = HOST_FUNCTION(call)
    for number, word in ((1, 0x3F800000), (2, 0x40000000)):  # 1 and 2 as floats
        driver("cuMemsetD32Async", there, word, COUNT, stream)
        driver("cuMemcpyDtoHAsync_v2", back.ctypes.data, there, back.nbytes, stream)
        driver("cuLaunchHostFunc", stream, function, ctypes.c_void_p(number))
    driver("cuStreamSynchronize", stream)
    stage.free(there)
    hold(seen == [(1, 1.0), (2, 2.0)], f"the functions saw {seen}")
    return [list(each) for each in seen]


def _function_that_calls(stage: Stage) -> list[int]:
    driver, codes = stage.driver, list[int]()
    stream = driver.made("cuStreamCreate", NON_BLOCKING)
    function = HOST_FUNCTION(lambda data: codes.append(driver.code("cuStreamSynchronize", stream)))
    driver("cuLaunchHostFunc", stream, function, None)
    driver("cuStreamSynchronize", stream)
    return codes


def _per_thread(stage: Stage) -> list[float]:
    driver = stage.driver
    found, threads = list[float](), list[threading.Thread]()
    lock = threading.Lock()

    def work(number: int) -> None:
        driver("cuCtxSetCurrent", stage.context)
        back = np.zeros(COUNT, np.uint32)
        there = stage.room(back.nbytes)
        driver("cuMemsetD32Async", there, number, COUNT, PER_THREAD)
        driver("cuMemcpyDtoHAsync_v2", back.ctypes.data, there, back.nbytes, PER_THREAD)
        driver("cuStreamSynchronize", PER_THREAD)
        with lock:
            found.append(float(back.mean()))
        stage.free(there)

    for number in range(1, 4):
        threads.append(threading.Thread(target=work, args=(number,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    hold(sorted(found) == [1.0, 2.0, 3.0], f"the threads found {sorted(found)}")
    return sorted(found)
