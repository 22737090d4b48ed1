"""Kernels with known answers, each timed by events."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gputax.worker.selftest.stage import Array, Questions, Stage, digest, hold, three

TIMED_LAUNCHES = 20
INT = ctypes.c_int


@dataclass(frozen=True)
class Launch:
    """A kernel with its shape and arguments."""

    image: str
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    values: tuple[Any, ...]
    shared: int = 0


@dataclass(frozen=True)
class Case:
    """A launch, where its answer lies, and what it must be."""

    launch: Launch
    answer: int
    expected: Array
    exact: bool = True


def questions(stage: Stage) -> Questions:
    """Run each kernel, compare its answer, and measure how long a launch takes."""
    for make in CASES:
        case = make(stage)
        yield f"{case.launch.image}.{case.launch.kernel}", partial(_answered, stage, case)


def _answered(stage: Stage, case: Case) -> dict[str, Any]:
    launch = case.launch
    kernel = stage.kernel(launch.image, launch.kernel)

    def run() -> None:
        stage.run(kernel, launch.grid, launch.block, *launch.values, shared=launch.shared)

    run()
    stage.wait()
    found = stage.from_device(case.answer, case.expected)
    right = (found == case.expected).all() if case.exact else np.allclose(found, case.expected, rtol=1e-4, atol=1e-4)
    hold(bool(right), "the kernel's answer is wrong")
    x, y, z = three(launch.grid)
    width, height, depth = three(launch.block)
    shape = {"kernel": launch.kernel, "blocks": x * y * z, "threads": width * height * depth}
    return {"answer": digest(found), "time": {**shape, "us": _microseconds(stage, run)}}


def _microseconds(stage: Stage, run: Callable[[], None]) -> float:
    """Return the time of one launch between two events of the device, over many in a row."""
    begin, end = (stage.driver.made("cuEventCreate", 0) for _ in range(2))
    stage.driver("cuEventRecord", begin, 0)
    for _ in range(TIMED_LAUNCHES):
        run()
    stage.driver("cuEventRecord", end, 0)
    stage.driver("cuEventSynchronize", end)
    elapsed_ms = ctypes.c_float()
    stage.driver("cuEventElapsedTime", ctypes.byref(elapsed_ms), begin, end)
    for event in (begin, end):
        stage.driver("cuEventDestroy_v2", event)
    return elapsed_ms.value * 1e3 / TIMED_LAUNCHES


def _vector_add(stage: Stage, count: int = 100_003) -> Case:
    a, b = stage.floats(count), stage.floats(count)
    out = stage.to_device(np.zeros_like(a))
    values = (stage.to_device(a), stage.to_device(b), out, INT(count))
    return Case(Launch("vector", "vector_add", (-(-count // 256),), (256,), values), out, a + b)


def _vector_add4(stage: Stage, count: int = 4096) -> Case:
    a, b = stage.floats(count), stage.floats(count)
    out = stage.to_device(np.zeros_like(a))
    values = (stage.to_device(a), stage.to_device(b), out, INT(count // 4))
    return Case(Launch("vector", "vector_add4", (4,), (256,), values), out, a + b)


def _matmul(stage: Stage, n: int = 50) -> Case:
    a, b = stage.floats(n * n), stage.floats(n * n)
    out = stage.to_device(np.zeros_like(a))
    values = (stage.to_device(a), stage.to_device(b), out, INT(n))
    expected = (a.reshape(n, n) @ b.reshape(n, n)).ravel()
    return Case(Launch("matmul", "matmul", (4, 4), (16, 16), values), out, expected, exact=False)


def _matmul_dynamic(stage: Stage, n: int = 50) -> Case:
    a, b = (stage.floats(n * n).astype(np.float64) for _ in range(2))
    out = stage.to_device(np.zeros_like(a))
    values = (stage.to_device(a), stage.to_device(b), out, INT(n))
    expected = (a.reshape(n, n) @ b.reshape(n, n)).ravel()
    return Case(Launch("matmul", "matmul_dynamic", (7, 7), (8, 8), values, 2 * 64 * 8), out, expected, exact=False)


def _block_sum(stage: Stage, count: int = 5000) -> Case:
    numbers = stage.random.integers(0, 100, count).astype(np.float32)  # whole: exact in any order
    padded = np.zeros(20 * 256, np.float32)
    padded[:count] = numbers
    expected = padded.reshape(20, 256).sum(axis=1)
    out = stage.to_device(np.zeros(20, np.float32))
    return Case(
        Launch("reduce", "block_sum", (20,), (256,), (stage.to_device(numbers), out, INT(count)), 1024), out, expected
    )


def _shuffle_sum(stage: Stage, count: int = 5000) -> Case:
    numbers = stage.random.integers(-1000, 1000, count, dtype=np.int32)
    padded = np.zeros(20 * 256, np.int32)
    padded[:count] = numbers
    expected = padded.reshape(20, 256).sum(axis=1, dtype=np.int32)
    out = stage.to_device(np.zeros(20, np.int32))
    values = (stage.to_device(numbers), out, INT(count))
    return Case(Launch("reduce", "shuffle_sum", (20,), (256,), values), out, expected)


def _transpose(stage: Stage, width: int = 70, height: int = 45) -> Case:
    matrix = stage.floats(width * height)
    out = stage.to_device(np.zeros_like(matrix))
    values = (stage.to_device(matrix), out, INT(width), INT(height))
    expected = np.ascontiguousarray(matrix.reshape(height, width).T).ravel()
    return Case(Launch("transpose", "transpose", (3, 2), (32, 8), values), out, expected)


def _histogram(stage: Stage, kernel: str, grid: int) -> Case:
    """Count each launch from zero: the bins of a second launch would be twice as high."""
    data = stage.random.integers(0, 256, 30_000, dtype=np.uint8)
    out = stage.to_device(np.zeros(256, np.uint32))
    expected = np.bincount(data, minlength=256).astype(np.uint32)
    return Case(
        Launch("histogram", kernel, (grid,), (128,), (stage.to_device(data), out, INT(len(data)))), out, expected
    )


CASES: tuple[Callable[[Stage], Case], ...] = (
    _vector_add,
    _vector_add4,
    _matmul,
    _matmul_dynamic,
    _block_sum,
    _shuffle_sum,
    _transpose,
    partial(_histogram, kernel="histogram_shared", grid=8),
    partial(_histogram, kernel="histogram_global", grid=235),
)
