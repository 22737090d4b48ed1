"""Stream capture, host functions and per-thread default streams, as every libcuda must have them; one line per case."""

from __future__ import annotations

import ctypes
import json
import sys
import threading
from collections.abc import Callable
from typing import Any

import gpu
import numpy as np
from cuda.bindings import driver as cu
from gpu import error, from_device, function, launch, module, name_of, ok, to_device

COUNT = 1000
INT = ctypes.c_int
GLOBAL, THREAD_LOCAL, RELAXED = (cu.CUstreamCaptureMode(number) for number in range(3))
DEFAULT, NON_BLOCKING = 0, 1
NO_ERROR, VOID, NOT_NOW = (
    "CUDA_SUCCESS",
    "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
)
library = ctypes.CDLL("libcuda.so.1")


def floats(value: float) -> np.ndarray[Any, Any]:
    return np.full(COUNT, value, np.float32)


def pointer(handle: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(int(handle))


def captured(stream: Any, work: Callable[[], None], mode: Any = RELAXED) -> Any:
    ok(cu.cuStreamBeginCapture(stream, mode))
    work()
    return ok(cu.cuStreamEndCapture(stream))


def kinds_of(graph: Any) -> list[int]:
    nodes, count = ok(cu.cuGraphGetNodes(graph, 100))
    return [int(ok(cu.cuGraphNodeGetType(node))) for node in nodes[:count]]


def info(stream: Any) -> tuple[int, int]:
    """The status of a stream, and behind how many nodes its next one comes."""
    status, number, graph = ctypes.c_int(-1), ctypes.c_uint64(), ctypes.c_void_p()
    nodes, count = ctypes.c_void_p(), ctypes.c_size_t(99)
    answers = ctypes.byref(status), ctypes.byref(number), ctypes.byref(graph), ctypes.byref(nodes)
    assert library.cuStreamGetCaptureInfo_v3(pointer(stream), *answers, None, ctypes.byref(count)) == 0
    return status.value, count.value


def work_becomes_nodes_and_nothing_runs_before_the_launch() -> Any:
    add = function(module("vector"), "vector_add")
    a, b, out, last = (to_device(floats(v)) for v in (1, 2, 0, 0))
    stream = ok(cu.cuStreamCreate(NON_BLOCKING))
    back = floats(0)
    new = floats(7)

    def work() -> None:
        ok(cu.cuMemcpyHtoDAsync(b, new.ctypes.data, new.nbytes, stream))
        ok(cu.cuMemsetD32Async(a, 0x40400000, COUNT, stream))
        launch(add, (4,), (256,), (a, b, out, (COUNT, INT)), stream=stream)
        ok(cu.cuMemcpyDtoDAsync(last, out, 4 * COUNT, stream))
        ok(cu.cuMemcpyAsync(back.ctypes.data, last, 4 * COUNT, stream))
        assert info(stream) == (1, 1)

    graph = captured(stream, work)
    assert (from_device(out, floats(0)) == 0).all()
    assert info(stream)[0] == 0
    exec_ = ok(cu.cuGraphInstantiate(graph, 0))
    found: list[Any] = [kinds_of(graph)]
    for value in (7, 9):
        new[:] = value  # read when the graph runs
        back[:] = 0
        ok(cu.cuGraphLaunch(exec_, stream))
        ok(cu.cuStreamSynchronize(stream))
        found.append([float(from_device(last, floats(0))[5]), float(back[COUNT - 1])])
    assert found == [[1, 2, 0, 1, 1], [10, 10], [12, 12]], found
    ok(cu.cuGraphExecDestroy(exec_))
    ok(cu.cuGraphDestroy(graph))
    return found


def streams_fork_and_join_by_events() -> Any:
    add = function(module("vector"), "vector_add")
    a, b, left, right, out = (to_device(floats(v)) for v in (1, 2, 0, 0, 0))
    first, second = (ok(cu.cuStreamCreate(NON_BLOCKING)) for _ in range(2))
    fork, join = (ok(cu.cuEventCreate(0)) for _ in range(2))
    seen = []

    def work() -> None:
        ok(cu.cuMemsetD32Async(a, 0x40A00000, COUNT, first))  # 5
        ok(cu.cuEventRecord(fork, first))
        ok(cu.cuStreamWaitEvent(second, fork, 0))
        seen.append(info(second))
        launch(add, (4,), (256,), (a, b, right, (COUNT, INT)), stream=second)  # 7
        launch(add, (4,), (256,), (a, a, left, (COUNT, INT)), stream=first)  # 10
        ok(cu.cuEventRecord(join, second))
        ok(cu.cuStreamWaitEvent(first, join, 0))
        seen.append(info(first))
        launch(add, (4,), (256,), (left, right, out, (COUNT, INT)), stream=first)
        seen.append(info(first))

    graph = captured(first, work, GLOBAL)
    assert info(second)[0] == 0
    ok(cu.cuGraphLaunch(ok(cu.cuGraphInstantiate(graph, 0)), second))
    ok(cu.cuStreamSynchronize(second))
    assert (from_device(out, floats(0)) == 17).all()
    count = ctypes.c_size_t()
    assert seen == [(1, 1), (1, 2), (1, 1)], seen
    ok(cu.cuEventRecord(fork, first))  # both are ordinary events again
    ok(cu.cuEventSynchronize(fork))
    return [seen, kinds_of(graph), count.value]


def mistakes_end_the_capture_with_their_own_error() -> Any:
    first, second = (ok(cu.cuStreamCreate(NON_BLOCKING)) for _ in range(2))
    blocking = ok(cu.cuStreamCreate(DEFAULT))
    event, other, outside = (ok(cu.cuEventCreate(0)) for _ in range(3))
    there = to_device(floats(0))
    ok(cu.cuEventRecord(outside, second))
    found: dict[str, Any] = {}

    def begun(name: str, stream: Any, mistake: Callable[[], Any], mode: Any = RELAXED) -> None:
        ok(cu.cuStreamBeginCapture(stream, mode))
        ok(cu.cuMemsetD32Async(there, 1, 4, stream))
        ok(cu.cuEventRecord(event, stream))
        found[name] = [error(mistake()), info(stream)[0], error(cu.cuStreamEndCapture(stream))]
        ok(cu.cuEventRecord(event, stream))

    def forked() -> Any:
        ok(cu.cuStreamWaitEvent(second, event, 0))
        return cu.cuMemsetD32Async(there, 1, 4, second)

    def merged() -> Any:
        ok(cu.cuStreamBeginCapture(second, RELAXED))
        ok(cu.cuEventRecord(other, second))
        answer = cu.cuStreamWaitEvent(first, other, 0)
        found["the other capture"] = error(cu.cuStreamEndCapture(second))
        return answer

    def ended_elsewhere() -> Any:
        ok(cu.cuStreamWaitEvent(second, event, 0))
        return cu.cuStreamEndCapture(second)

    def ended_by_another_thread() -> Any:
        context, answers = ok(cu.cuCtxGetCurrent()), []

        def end() -> None:
            ok(cu.cuCtxSetCurrent(context))
            answers.append(cu.cuStreamEndCapture(first))

        thread = threading.Thread(target=end)
        thread.start()
        thread.join()
        return answers[0]

    begun("unjoined", first, forked)
    begun("merge", first, merged)
    begun("unmatched", first, ended_elsewhere)
    begun("wrong thread", first, ended_by_another_thread, THREAD_LOCAL)
    begun("isolation", first, lambda: cu.cuStreamWaitEvent(first, outside, 0))
    begun("synchronise", first, lambda: cu.cuStreamSynchronize(first))
    begun("query", first, lambda: cu.cuStreamQuery(first))
    begun("captured event", first, lambda: cu.cuEventQuery(event))
    begun("context", first, cu.cuCtxSynchronize)
    begun("legacy stream", blocking, lambda: cu.cuMemsetD32Async(there, 2, 4, 0))
    begun("blocking copy", blocking, lambda: cu.cuMemcpyHtoD(there, floats(0).ctypes.data, 16))
    begun("legacy stream joins", first, lambda: cu.cuStreamWaitEvent(0, event, 0))
    begun("allocation", first, lambda: cu.cuMemAlloc(16), GLOBAL)
    begun("allocation in a thread's capture", first, lambda: cu.cuMemAlloc(16), THREAD_LOCAL)
    begun("allocation in a relaxed capture", first, lambda: cu.cuMemAlloc(16))
    begun("allocation in the stream", first, lambda: cu.cuMemAllocAsync(16, first))
    begun("twice", first, lambda: cu.cuStreamBeginCapture(first, RELAXED))
    found["never begun"] = error(cu.cuStreamEndCapture(first))
    found["legacy"] = error(cu.cuStreamBeginCapture(0, RELAXED))
    found["mode"] = name_of(library.cuStreamBeginCapture_v2(pointer(first), 3))
    implicit, state = "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "CUDA_ERROR_ILLEGAL_STATE"
    assert found == {
        "unjoined": [NO_ERROR, 1, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"],
        "the other capture": VOID,
        "merge": ["CUDA_ERROR_STREAM_CAPTURE_MERGE", 2, VOID],
        "unmatched": ["CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", 2, VOID],
        "wrong thread": ["CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", 2, VOID],
        "isolation": ["CUDA_ERROR_STREAM_CAPTURE_ISOLATION", 2, VOID],
        "synchronise": [NOT_NOW, 2, VOID],
        "query": [NOT_NOW, 2, VOID],
        "captured event": ["CUDA_ERROR_CAPTURED_EVENT", 2, VOID],
        "context": [NOT_NOW, 2, VOID],
        "legacy stream": [implicit, 2, VOID],
        "blocking copy": [implicit, 2, VOID],
        "legacy stream joins": [implicit, 2, VOID],
        "allocation": [NOT_NOW, 2, VOID],
        "allocation in a thread's capture": [NOT_NOW, 2, VOID],
        "allocation in a relaxed capture": [NO_ERROR, 1, NO_ERROR],
        "allocation in the stream": ["CUDA_ERROR_NOT_SUPPORTED", 2, VOID],
        "twice": [state, 1, NO_ERROR],
        "never begun": state,
        "legacy": NOT_NOW,
        "mode": "CUDA_ERROR_INVALID_VALUE",
    }, found
    ok(cu.cuCtxSynchronize())
    assert from_device(there, floats(0))[:4].view(np.uint32).tolist() == [0, 0, 0, 0]
    return found


def modes_decide_what_other_threads_may_do() -> Any:
    stream, context = ok(cu.cuStreamCreate(NON_BLOCKING)), ok(cu.cuCtxGetCurrent())
    found = []
    for capture in (GLOBAL, THREAD_LOCAL, RELAXED):
        for mode in (GLOBAL, THREAD_LOCAL, RELAXED):
            ok(cu.cuStreamBeginCapture(stream, capture))
            answers: list[str] = []

            def allocate(mode: Any = mode, answers: list[str] = answers) -> None:
                ok(cu.cuCtxSetCurrent(context))
                old = ok(cu.cuThreadExchangeStreamCaptureMode(mode))
                assert old == GLOBAL
                answers.append(error(cu.cuMemAlloc(16)))

            thread = threading.Thread(target=allocate)
            thread.start()
            thread.join()
            answers.append(error(cu.cuStreamEndCapture(stream)))
            found.append([capture.value, mode.value, *answers])
    refused = [row[:2] for row in found if row[2:] == [NOT_NOW, VOID]]
    allowed = [row[:2] for row in found if row[2:] == [NO_ERROR, NO_ERROR]]
    assert refused == [[0, 0]], found
    assert len(allowed) == 8, found
    return found


def a_graph_launched_in_a_capture_becomes_part_of_it() -> Any:
    there = to_device(np.zeros(COUNT, np.uint32))
    stream = ok(cu.cuStreamCreate(NON_BLOCKING))
    inner = captured(stream, lambda: ok(cu.cuMemsetD32Async(there, 5, 10, stream)))
    exec_ = ok(cu.cuGraphInstantiate(inner, 0))

    def work() -> None:
        ok(cu.cuMemsetD32Async(there, 4, 20, stream))
        ok(cu.cuGraphLaunch(exec_, stream))
        ok(cu.cuMemsetD32Async(there, 6, 5, stream))

    outer = captured(stream, work)
    ok(cu.cuGraphExecDestroy(exec_))
    ok(cu.cuGraphLaunch(ok(cu.cuGraphInstantiate(outer, 0)), 0))
    found = from_device(there, np.zeros(COUNT, np.uint32))[:21].tolist()
    assert found == [6] * 5 + [5] * 5 + [4] * 10 + [0], found
    return kinds_of(outer)


HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)


def host_functions_keep_the_order_of_their_stream() -> Any:
    stream, other = (ok(cu.cuStreamCreate(NON_BLOCKING)) for _ in range(2))
    there = to_device(np.zeros(COUNT, np.uint32))
    seen: list[Any] = []
    gate = threading.Event()
    buffer = np.zeros(COUNT, np.uint32)

    def hold(data: Any) -> None:
        gate.wait(20)
        seen.append(["function", data, threading.current_thread() is threading.main_thread(), int(buffer[0])])
        buffer[:] = 9

    function_, callback = HostFunction(hold), Callback(lambda _, status, data: seen.append(["callback", status, data]))
    ok(cu.cuMemsetD32Async(there, 3, COUNT, stream))
    ok(cu.cuMemcpyDtoHAsync(buffer.ctypes.data, there, buffer.nbytes, stream))
    assert library.cuLaunchHostFunc(pointer(stream), function_, ctypes.c_void_p(17)) == 0
    assert library.cuStreamAddCallback(pointer(stream), callback, ctypes.c_void_p(18), 0) == 0
    assert seen == []  # the call returned before the function did
    waiting = error(cu.cuStreamQuery(stream))
    ok(cu.cuMemsetD32Async(there, 5, 10, other))  # another stream does not wait
    ok(cu.cuStreamSynchronize(other))
    threading.Timer(0.05, gate.set).start()
    ok(cu.cuMemcpyHtoDAsync(there, buffer.ctypes.data, buffer.nbytes, stream))  # behind both
    ok(cu.cuStreamSynchronize(stream))
    assert (from_device(there, buffer) == 9).all()
    assert seen == [["function", 17, False, 3], ["callback", 0, 18]], seen
    assert waiting == "CUDA_ERROR_NOT_READY", waiting
    wrong = [
        name_of(library.cuLaunchHostFunc(pointer(stream), HostFunction(0), None)),
        name_of(library.cuStreamAddCallback(pointer(stream), callback, None, 1)),
        name_of(library.cuLaunchHostFunc(ctypes.c_void_p(0x123450), function_, None)),
    ]
    assert wrong == ["CUDA_ERROR_INVALID_VALUE"] * 2 + ["CUDA_ERROR_INVALID_HANDLE"], wrong
    return [seen, waiting, wrong]


def a_host_function_may_not_wait_for_its_own_stream() -> Any:
    stream, seen = ok(cu.cuStreamCreate(NON_BLOCKING)), []
    call = HostFunction(lambda _: seen.append(name_of(library.cuStreamSynchronize(pointer(stream)))))
    assert library.cuLaunchHostFunc(pointer(stream), call, None) == 0
    ok(cu.cuCtxSynchronize())
    assert seen == ["CUDA_ERROR_NOT_PERMITTED"], seen
    return seen


def host_functions_and_copies_are_nodes() -> Any:
    stream = ok(cu.cuStreamCreate(NON_BLOCKING))
    there = to_device(np.zeros(COUNT, np.uint32))
    buffer = np.zeros(COUNT, np.uint32)
    seen = []

    def double(_: Any) -> None:
        seen.append(int(buffer[0]))
        buffer[:] *= 2

    call = HostFunction(double)

    def work() -> None:
        ok(cu.cuMemsetD32Async(there, 3, COUNT, stream))
        ok(cu.cuMemcpyDtoHAsync(buffer.ctypes.data, there, buffer.nbytes, stream))
        assert library.cuLaunchHostFunc(pointer(stream), call, None) == 0
        ok(cu.cuMemcpyHtoDAsync(there, buffer.ctypes.data, buffer.nbytes, stream))

    graph = captured(stream, work)
    assert seen == []
    node = cu.CUDA_HOST_NODE_PARAMS()
    node.fn, node.userData = ctypes.cast(call, ctypes.c_void_p).value, 0
    nodes, count = ok(cu.cuGraphGetNodes(graph, 10))
    ok(cu.cuGraphAddHostNode(graph, [nodes[count - 1]], 1, node))
    exec_ = ok(cu.cuGraphInstantiate(graph, 0))
    for _ in range(2):
        ok(cu.cuGraphLaunch(exec_, stream))
    ok(cu.cuGraphExecDestroy(exec_))  # what was launched runs to its end
    ok(cu.cuStreamSynchronize(stream))
    assert (from_device(there, buffer) == 6).all()
    assert seen == [3, 6, 3, 6], seen
    return [seen, kinds_of(graph)]


def every_thread_has_a_default_stream_of_its_own() -> Any:
    found = ctypes.c_void_p()
    names = [b"cuMemsetD32Async", b"cuStreamBeginCapture", b"cuStreamEndCapture", b"cuMemcpyDtoH", b"cuMemAlloc"]
    calls: list[int] = []
    for name in names:
        asked = (name, ctypes.byref(found), 12000, ctypes.c_uint64(2))
        assert library.cuGetProcAddress_v2(*asked, None) == 0
        calls.append(found.value or 0)
    exported = [
        ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        for name in (
            "cuMemsetD32Async_ptsz",
            "cuStreamBeginCapture_v2_ptsz",
            "cuStreamEndCapture_ptsz",
            "cuMemcpyDtoH_v2_ptds",
            "cuMemAlloc_v2",
        )
    ]
    assert calls == exported
    result = ctypes.c_int
    fill = ctypes.CFUNCTYPE(result, ctypes.c_uint64, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p)(calls[0])
    begin = ctypes.CFUNCTYPE(result, ctypes.c_void_p, ctypes.c_int)(calls[1])
    end = ctypes.CFUNCTYPE(result, ctypes.c_void_p, ctypes.c_void_p)(calls[2])
    context, there = ok(cu.cuCtxGetCurrent()), to_device(np.zeros(COUNT, np.uint32))
    answers: list[Any] = []
    turns = threading.Barrier(2)

    def run(value: int) -> None:
        graph = ctypes.c_void_p()
        ok(cu.cuCtxSetCurrent(context))
        codes = [begin(None, 2)]
        turns.wait(20)  # both threads capture their default stream at the same time
        codes.append(fill(int(there) + 4 * value, value, 1, 0))
        codes.append(fill(int(there) + 4 * value + 400, value, 1, 2))  # by its handle
        turns.wait(20)
        codes.append(end(None, ctypes.byref(graph)))
        exec_ = ok(cu.cuGraphInstantiate(cu.CUgraph(graph.value), 0))
        codes.append(int(cu.cuGraphLaunch(exec_, cu.CUstream(2))[0]))
        codes.append(library.cuStreamSynchronize_ptsz(None))
        answers.append([value, codes, len(kinds_of(cu.CUgraph(graph.value)))])

    threads = [threading.Thread(target=run, args=(value,)) for value in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers.sort()
    assert answers == [[1, [0] * 6, 2], [2, [0] * 6, 2]], answers
    seen = from_device(there, np.zeros(COUNT, np.uint32))
    assert (seen[[1, 2, 101, 102]] == [1, 2, 1, 2]).all()
    assert name_of(library.cuStreamDestroy_v2(ctypes.c_void_p(2))) != NO_ERROR
    return answers


CASES: list[Callable[[], Any]] = [
    work_becomes_nodes_and_nothing_runs_before_the_launch,
    streams_fork_and_join_by_events,
    mistakes_end_the_capture_with_their_own_error,
    modes_decide_what_other_threads_may_do,
    a_graph_launched_in_a_capture_becomes_part_of_it,
    host_functions_keep_the_order_of_their_stream,
    a_host_function_may_not_wait_for_its_own_stream,
    host_functions_and_copies_are_nodes,
    every_thread_has_a_default_stream_of_its_own,
]


def main() -> None:
    context = gpu.begin()
    only = sys.argv[1:]
    for case in CASES:
        if not only or case.__name__ in only:
            ok(cu.cuCtxSetCurrent(context))
            print(case.__name__, json.dumps(case()), flush=True)
    ok(cu.cuCtxSetCurrent(context))
    ok(cu.cuCtxDestroy(context))


main()
