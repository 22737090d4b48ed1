"""Programs that build graphs, by hand and by stream capture, and what a capture forbids."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gputax.worker.selftest.stage import Questions, Stage, hold, packed

COUNT = 1000
NON_BLOCKING = 1
GLOBAL, THREAD_LOCAL, RELAXED = range(3)
INT = ctypes.c_int


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS, the first form."""

    _fields_ = (
        ("function", ctypes.c_uint64), ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint), ("parameters", ctypes.c_void_p), ("extra", ctypes.c_void_p),
    )  # fmt: skip


class FillNode(ctypes.Structure):
    """CUDA_MEMSET_NODE_PARAMS."""

    _fields_ = (
        ("to", ctypes.c_uint64), ("pitch", ctypes.c_size_t), ("value", ctypes.c_uint), ("element_bytes", ctypes.c_uint),
        ("width", ctypes.c_size_t), ("height", ctypes.c_size_t),
    )  # fmt: skip


def questions(stage: Stage) -> Questions:
    """Graphs that compute, and captures that must not."""
    yield "built by hand, changed and run again", partial(_by_hand, stage)
    yield "a circle", partial(_circle, stage)
    yield "captured", partial(_captured, stage)
    yield "captured across two streams", partial(_forked, stage)
    for mode, title in ((GLOBAL, "global"), (THREAD_LOCAL, "thread-local"), (RELAXED, "relaxed")):
        yield f"capture, {title}: waiting for the stream", partial(_forbidden, stage, mode, "cuStreamSynchronize")
        yield f"capture, {title}: asking the stream", partial(_forbidden, stage, mode, "cuStreamQuery")
        yield f"capture, {title}: allocating", partial(_allocates, stage, mode)
    yield "a branch that is not joined", partial(_not_joined, stage)
    yield "ended before it began", partial(_ended_first, stage)


def _kernel_node(kernel: int, values: tuple[Any, ...]) -> tuple[KernelNode, Any]:
    arguments, kept = packed(values)
    address = ctypes.cast(arguments, ctypes.c_void_p)
    return KernelNode(kernel, (4, 1, 1), (256, 1, 1), 0, address, None), (arguments, kept)


def _by_hand(stage: Stage) -> list[Any]:
    driver = stage.driver
    add = stage.kernel("vector", "vector_add")
    ones = np.ones(COUNT, np.float32)
    a, b, out = stage.to_device(ones), stage.to_device(ones), stage.to_device(ones)
    graph = driver.made("cuGraphCreate", 0)
    fill = FillNode(a, 0, 0x40400000, 4, COUNT, 1)  # 3.0
    filled = driver.made("cuGraphAddMemsetNode", graph, None, 0, ctypes.byref(fill), stage.context)
    parameters, _kept = _kernel_node(add, (a, b, out, INT(COUNT)))
    behind = (ctypes.c_uint64 * 1)(filled)
    added = driver.made("cuGraphAddKernelNode", graph, behind, 1, ctypes.byref(parameters))
    exec_ = driver.made("cuGraphInstantiateWithFlags", graph, 0)
    stream = driver.made("cuStreamCreate", NON_BLOCKING)
    found = []
    for _ in range(2):
        driver("cuGraphLaunch", exec_, stream)
        driver("cuStreamSynchronize", stream)
        found.append(float(stage.from_device(out, ones)[COUNT - 1]))
        changed, _kept = _kernel_node(add, (a, a, out, INT(COUNT)))
        driver("cuGraphExecKernelNodeSetParams", exec_, added, ctypes.byref(changed))
    hold(found == [4.0, 6.0], f"the graph computed {found}")
    types = _node_types(stage, graph)
    codes = [driver.code("cuGraphExecDestroy", exec_), driver.code("cuGraphDestroy", graph)]
    stage.free(a, b, out)
    return [found, types, codes]


def _node_types(stage: Stage, graph: int) -> list[int]:
    count = ctypes.c_size_t(16)
    nodes = (ctypes.c_uint64 * 16)()
    stage.driver("cuGraphGetNodes", graph, nodes, ctypes.byref(count))
    types = []
    for node in nodes[: count.value]:
        kind = ctypes.c_int()
        stage.driver("cuGraphNodeGetType", node, ctypes.byref(kind))
        types.append(kind.value)
    return types


def _circle(stage: Stage) -> list[int]:
    driver = stage.driver
    graph = driver.made("cuGraphCreate", 0)
    nodes = [driver.made("cuGraphAddEmptyNode", graph, None, 0) for _ in range(2)]
    codes = []
    for one, other in (nodes, reversed(nodes)):
        source, target = (ctypes.c_uint64 * 1)(one), (ctypes.c_uint64 * 1)(other)
        codes.append(driver.code("cuGraphAddDependencies", graph, source, target, 1))
    exec_ = ctypes.c_uint64()
    refused = driver.code("cuGraphInstantiateWithFlags", ctypes.byref(exec_), graph, 0) != 0 or any(codes)
    driver("cuGraphDestroy", graph)
    return [int(refused)]


def _capture(stage: Stage, stream: int, work: Callable[[], None], mode: int = RELAXED) -> int:
    stage.driver("cuStreamBeginCapture_v2", stream, mode)
    work()
    graph = ctypes.c_uint64()
    stage.driver("cuStreamEndCapture", stream, ctypes.byref(graph))
    return graph.value


def _captured(stage: Stage) -> list[Any]:
    driver = stage.driver
    add = stage.kernel("vector", "vector_add")
    stream = driver.made("cuStreamCreate", NON_BLOCKING)
    a, b, out = (stage.to_device(np.full(COUNT, value, np.float32)) for value in (1, 2, 0))
    new, back, called = np.full(COUNT, 7, np.float32), np.zeros(COUNT, np.float32), list[float]()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: called.append(float(back[0])))

    def work() -> None:
        driver("cuMemcpyHtoDAsync_v2", b, new.ctypes.data, new.nbytes, stream)
        driver("cuMemsetD32Async", a, 0x40400000, COUNT, stream)
        stage.run(add, (4,), (256,), a, b, out, INT(COUNT), stream=stream)
        driver("cuMemcpyDtoHAsync_v2", back.ctypes.data, out, back.nbytes, stream)
        driver("cuLaunchHostFunc", stream, function, None)

    graph = _capture(stage, stream, work)
    hold(float(back[0]) == 0.0, "something ran while it was captured")
    types = _node_types(stage, graph)
    exec_ = driver.made("cuGraphInstantiateWithFlags", graph, 0)
    for value in (7, 9):
        new[:] = value
        driver("cuGraphLaunch", exec_, stream)
        driver("cuStreamSynchronize", stream)
    hold(called == [10.0, 12.0], f"the graph's function saw {called}")
    driver("cuGraphExecDestroy", exec_)
    driver("cuGraphDestroy", graph)
    return [types, called]


def _forked(stage: Stage) -> float:
    driver = stage.driver
    add = stage.kernel("vector", "vector_add")
    first, second = (driver.made("cuStreamCreate", NON_BLOCKING) for _ in range(2))
    fork, join = (driver.made("cuEventCreate", 0) for _ in range(2))
    a, b, left, right, out = (stage.to_device(np.full(COUNT, value, np.float32)) for value in (1, 2, 0, 0, 0))

    def work() -> None:
        driver("cuMemsetD32Async", a, 0x40A00000, COUNT, first)  # 5
        driver("cuEventRecord", fork, first)
        driver("cuStreamWaitEvent", second, fork, 0)
        stage.run(add, (4,), (256,), a, b, right, INT(COUNT), stream=second)  # 7
        stage.run(add, (4,), (256,), a, a, left, INT(COUNT), stream=first)  # 10
        driver("cuEventRecord", join, second)
        driver("cuStreamWaitEvent", first, join, 0)
        stage.run(add, (4,), (256,), left, right, out, INT(COUNT), stream=first)

    exec_ = driver.made("cuGraphInstantiateWithFlags", _capture(stage, first, work), 0)
    driver("cuGraphLaunch", exec_, first)
    driver("cuStreamSynchronize", first)
    found = float(stage.from_device(out, np.zeros(COUNT, np.float32))[7])
    hold(found == 17.0, f"the branches gave {found}")
    return found


def _ended(stage: Stage, stream: int) -> int:
    graph = ctypes.c_uint64()
    return stage.driver.code("cuStreamEndCapture", stream, ctypes.byref(graph))


def _forbidden(stage: Stage, mode: int, name: str) -> list[int]:
    stream = stage.driver.made("cuStreamCreate", NON_BLOCKING)
    stage.driver("cuStreamBeginCapture_v2", stream, mode)
    codes = [stage.driver.code(name, stream), _ended(stage, stream)]
    return [*codes, stage.driver.code("cuStreamDestroy_v2", stream)]


def _allocates(stage: Stage, mode: int) -> list[int]:
    stream = stage.driver.made("cuStreamCreate", NON_BLOCKING)
    stage.driver("cuStreamBeginCapture_v2", stream, mode)
    pointer = ctypes.c_uint64()
    codes = [stage.driver.code("cuMemAlloc_v2", ctypes.byref(pointer), 4096), _ended(stage, stream)]
    if pointer.value:
        stage.free(pointer.value)
    return codes


def _not_joined(stage: Stage) -> list[int]:
    driver = stage.driver
    first, second = (driver.made("cuStreamCreate", NON_BLOCKING) for _ in range(2))
    fork, there = driver.made("cuEventCreate", 0), stage.room(64)
    driver("cuStreamBeginCapture_v2", first, RELAXED)
    driver("cuEventRecord", fork, first)
    driver("cuStreamWaitEvent", second, fork, 0)
    codes = [driver.code("cuMemsetD8Async", there, 0, 64, second), _ended(stage, first)]
    stage.free(there)
    return codes


def _ended_first(stage: Stage) -> int:
    return _ended(stage, stage.driver.made("cuStreamCreate", NON_BLOCKING))
