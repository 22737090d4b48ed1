"""Graphs of the driver API, as every libcuda must run them; one line per case, the same on each library."""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from typing import Any

import gpu
import numpy as np
from cuda.bindings import driver as cu
from gpu import error, from_device, function, module, name_of, ok, to_device

INT, COUNT = ctypes.c_int, 1000
BAD_VALUE, BAD_HANDLE = "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_INVALID_HANDLE"
UNSUPPORTED, BAD_ADDRESS = "CUDA_ERROR_NOT_SUPPORTED", "CUDA_ERROR_ILLEGAL_ADDRESS"
library = ctypes.CDLL("libcuda.so.1")


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v1."""

    _fields_ = (
        ("func", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("parameters", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
    )


def floats(*values: float) -> np.ndarray[Any, Any]:
    return np.full(COUNT, values[0], np.float32)


def kernel(handle: Any, values: tuple[Any, ...], types: tuple[Any, ...], blocks: int = 4) -> Any:
    """Parameters of a kernel node; `keep` holds what they point to until the call."""
    node = cu.CUDA_KERNEL_NODE_PARAMS()
    node.func = handle
    node.gridDimX, node.gridDimY, node.gridDimZ = blocks, 1, 1
    node.blockDimX, node.blockDimY, node.blockDimZ = 256, 1, 1
    node.kernelParams = (values, types)
    return node


def adding(handle: Any, a: Any, b: Any, out: Any, count: int = COUNT) -> Any:
    return kernel(handle, (a, b, out, count), (None, None, None, INT))


def copy(to: Any, source: Any, count: int) -> Any:
    node = cu.CUDA_MEMCPY3D()
    node.srcMemoryType = node.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
    node.srcDevice, node.dstDevice = source, to
    node.WidthInBytes, node.Height, node.Depth = count, 1, 1
    return node


def fill(to: Any, value: int, width: int, count: int) -> Any:
    node = cu.CUDA_MEMSET_NODE_PARAMS()
    node.dst, node.value, node.elementSize, node.width, node.height = to, value, width, count, 1
    return node


def a_chain_runs_in_the_order_of_its_dependencies() -> Any:
    add = function(module("vector"), "vector_add")
    a, b, out, last = (to_device(floats(v)) for v in (1, 2, 0, 0))
    context, graph = ok(cu.cuCtxGetCurrent()), ok(cu.cuGraphCreate(0))
    # Added backwards, and turned around by dependencies: fill a, out = a + b, copy, then a + last again into out.
    copied = ok(cu.cuGraphAddMemcpyNode(graph, None, 0, copy(last, out, 4 * COUNT), context))
    added = ok(cu.cuGraphAddKernelNode(graph, None, 0, adding(add, a, b, out)))
    filled = ok(cu.cuGraphAddMemsetNode(graph, None, 0, fill(a, 0x40400000, 4, COUNT), context))
    joined = ok(cu.cuGraphAddEmptyNode(graph, [copied], 1))
    again = ok(cu.cuGraphAddKernelNode(graph, [joined], 1, adding(add, a, last, out)))
    ends = (ctypes.c_void_p * 2)(int(filled), int(added)), (ctypes.c_void_p * 2)(int(added), int(copied))
    assert library.cuGraphAddDependencies(ctypes.c_void_p(int(graph)), *ends, ctypes.c_size_t(2)) == 0
    nodes, number = ok(cu.cuGraphGetNodes(graph, 9))
    assert [int(n) for n in nodes[:number]] == [int(n) for n in (copied, added, filled, joined, again)]
    kinds = [int(ok(cu.cuGraphNodeGetType(n))) for n in (copied, added, filled, joined)]
    exec_ = ok(cu.cuGraphInstantiate(graph, 0))
    ok(cu.cuGraphUpload(exec_, 0))
    ok(cu.cuGraphLaunch(exec_, 0))
    assert (from_device(last, floats(0)) == 5).all()
    assert (from_device(out, floats(0)) == 8).all()
    ok(cu.cuGraphDestroy(graph))  # what was instantiated lives on
    ok(cu.cuMemsetD32(out, 0, COUNT))
    ok(cu.cuGraphLaunch(exec_, 0))
    ok(cu.cuGraphExecDestroy(exec_))
    return [kinds, from_device(out, floats(0)).tolist()[:2]]


def a_circle_is_refused() -> Any:
    graph = ok(cu.cuGraphCreate(0))
    nodes: list[Any] = []
    for _ in range(3):
        nodes.append(ok(cu.cuGraphAddEmptyNode(graph, nodes[-1:], len(nodes[-1:]))))
    back = (ctypes.c_void_p * 1)(int(nodes[2])), (ctypes.c_void_p * 1)(int(nodes[0]))
    assert library.cuGraphAddDependencies(ctypes.c_void_p(int(graph)), *back, ctypes.c_size_t(1)) == 0
    found = [error(cu.cuGraphInstantiate(graph, 0))]
    itself = (ctypes.c_void_p * 1)(int(nodes[1]))
    found.append(
        name_of(library.cuGraphAddDependencies(ctypes.c_void_p(int(graph)), itself, itself, ctypes.c_size_t(1)))
    )
    ok(cu.cuGraphDestroy(graph))
    assert found == [BAD_VALUE, BAD_VALUE], found
    return found


def parameters_are_copied_and_change_for_the_next_launch_only() -> Any:
    add = function(module("vector"), "vector_add")
    a, b, c, out, other = (to_device(floats(v)) for v in (1, 2, 10, 0, 0))
    context, graph = ok(cu.cuCtxGetCurrent()), ok(cu.cuGraphCreate(0))
    first = ok(cu.cuGraphAddKernelNode(graph, None, 0, adding(add, a, b, out)))
    second = ok(cu.cuGraphAddMemcpyNode(graph, [first], 1, copy(other, out, 4 * COUNT), context))
    third = ok(cu.cuGraphAddMemsetNode(graph, [second], 1, fill(out, 0, 1, 16), context))
    exec_ = ok(cu.cuGraphInstantiate(graph, 0))
    found = []
    ok(cu.cuGraphLaunch(exec_, 0))
    found.append([float(from_device(p, floats(0))[3]) for p in (out, other)])
    ok(cu.cuGraphExecKernelNodeSetParams(exec_, first, adding(add, a, c, out)))
    ok(cu.cuGraphExecMemcpyNodeSetParams(exec_, second, copy(int(other) + 400, out, 400), context))
    ok(cu.cuGraphExecMemsetNodeSetParams(exec_, third, fill(out, 0x3C3C, 2, 8), context))
    ok(cu.cuGraphExecMemsetNodeSetParams(exec_, third, fill(out, 0x3C3C, 2, 8), context))  # the same again
    ok(cu.cuGraphLaunch(exec_, 0))
    after = from_device(other, floats(0))
    assert (after[:100] == 3).all()
    assert (after[204:] == 3).all()
    assert (after[104:200] == 11).all()
    found.append([from_device(out, floats(0)).view(np.uint32).tolist()[i] for i in (0, 3, 4)])
    ok(cu.cuGraphExecDestroy(exec_))
    ok(cu.cuGraphDestroy(graph))
    return found


def the_oldest_forms_of_the_calls_work_too() -> Any:
    """As tinygrad calls them: the structure of CUDA 10, packed parameters, exported names."""
    add = function(module("vector"), "vector_add")
    a, b, out = (to_device(floats(v)) for v in (4, 5, 0))
    packed = (ctypes.c_uint64 * 4)(int(a), int(b), int(out), COUNT)
    size = ctypes.c_size_t(28)
    extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(packed), 2, ctypes.addressof(size), 0)
    node = KernelNode(int(add), (4, 1, 1), (256, 1, 1), 0, None, ctypes.addressof(extra))
    graph, made, exec_ = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    assert library.cuGraphCreate(ctypes.byref(graph), 0) == 0
    assert library.cuGraphAddKernelNode(ctypes.byref(made), graph, None, ctypes.c_size_t(0), ctypes.byref(node)) == 0
    packed[0] = 0  # the values were copied
    made_exec = library.cuGraphInstantiate_v2(ctypes.byref(exec_), graph, None, None, ctypes.c_size_t(0))
    assert made_exec == 0
    assert library.cuGraphLaunch(exec_, None) == 0
    assert (from_device(out, floats(0)) == 9).all()
    packed[0], packed[1] = int(b), int(b)
    assert library.cuGraphExecKernelNodeSetParams(exec_, made, ctypes.byref(node)) == 0
    assert library.cuGraphLaunch(exec_, None) == 0
    assert (from_device(out, floats(0)) == 10).all()
    size.value = 20
    short = name_of(library.cuGraphExecKernelNodeSetParams(exec_, made, ctypes.byref(node)))
    assert library.cuGraphExecDestroy(exec_) == 0
    assert library.cuGraphDestroy(graph) == 0
    assert short == BAD_VALUE
    return short


def mistakes_are_named() -> Any:
    loaded = module("vector")
    add, context, graph = function(loaded, "vector_add"), ok(cu.cuCtxGetCurrent()), ok(cu.cuGraphCreate(0))
    a, b, out = (to_device(floats(v)) for v in (1, 2, 0))
    good = adding(add, a, b, out)
    node = ok(cu.cuGraphAddKernelNode(graph, None, 0, good))
    stranger = ok(cu.cuGraphAddEmptyNode(ok(cu.cuGraphCreate(0)), None, 0))
    host = np.zeros(16, np.uint8)
    from_host = copy(a, 0, 16)
    from_host.srcMemoryType, from_host.srcHost = cu.CUmemorytype.CU_MEMORYTYPE_HOST, host.ctypes.data
    from_host.dstMemoryType, from_host.dstHost = cu.CUmemorytype.CU_MEMORYTYPE_HOST, host.ctypes.data
    none = kernel(add, (a, b, out, COUNT), (None, None, None, INT), blocks=0)
    unknown = kernel(12345, (), ())
    exec_ = ok(cu.cuGraphInstantiate(graph, 0))
    apart = copy(out, a, 32)
    apart.Height, apart.srcPitch, apart.dstPitch = 2, 64, 64
    found = {
        "a node of another graph": error(cu.cuGraphAddEmptyNode(graph, [stranger], 1)),
        "a node twice": error(cu.cuGraphAddEmptyNode(graph, [node, node], 2)),
        "no graph": error(cu.cuGraphAddEmptyNode(1234567, None, 0)),
        "flags": error(cu.cuGraphCreate(1)),
        "host to host": error(cu.cuGraphAddMemcpyNode(graph, None, 0, from_host, context)),
        "rows apart": error(cu.cuGraphAddMemcpyNode(graph, None, 0, apart, context)),
        "three bytes": error(cu.cuGraphAddMemsetNode(graph, None, 0, fill(a, 0, 3, 4), context)),
        "an empty grid": error(cu.cuGraphAddKernelNode(graph, None, 0, none)),
        "no kernel": error(cu.cuGraphAddKernelNode(graph, None, 0, unknown)),
        "update of another kind": error(cu.cuGraphExecMemcpyNodeSetParams(exec_, node, copy(a, b, 4), context)),
        "update of a stranger": error(cu.cuGraphExecKernelNodeSetParams(exec_, stranger, good)),
        "launch of nothing": error(cu.cuGraphLaunch(1234567, 0)),
        "device launch": error(cu.cuGraphInstantiate(graph, 4)),
        "unknown flags": error(cu.cuGraphInstantiate(graph, 1 << 20)),
    }
    outside = ok(cu.cuGraphCreate(0))
    ok(cu.cuGraphAddMemcpyNode(outside, None, 0, copy(int(a) + 4, b, 4 * COUNT), context))
    found["a copy behind its memory"] = error(cu.cuGraphInstantiate(outside, 0))
    found["a fill that wraps around"] = error(cu.cuGraphAddMemsetNode(graph, None, 0, fill(a, 0, 4, 1 << 62), context))
    ok(cu.cuGraphExecDestroy(exec_))
    found["a second end"] = error(cu.cuGraphExecDestroy(exec_))
    ok(cu.cuGraphDestroy(graph))
    found["a second end of the graph"] = error(cu.cuGraphDestroy(graph))
    found["a node of an ended graph"] = error(cu.cuGraphNodeGetType(node))
    expected = dict.fromkeys(found, BAD_VALUE)
    expected |= {"host to host": UNSUPPORTED, "rows apart": UNSUPPORTED, "device launch": UNSUPPORTED}
    expected |= {"no kernel": BAD_HANDLE}
    assert found == expected, found
    return found


def what_is_gone_at_launch_is_an_error_and_not_a_crash() -> Any:
    loaded = module("vector")
    add, context = function(loaded, "vector_add"), ok(cu.cuCtxGetCurrent())
    a, b, out = (to_device(floats(v)) for v in (1, 2, 0))
    graphs = [ok(cu.cuGraphCreate(0)) for _ in range(2)]
    ok(cu.cuGraphAddKernelNode(graphs[0], None, 0, adding(add, a, b, out)))
    ok(cu.cuGraphAddMemcpyNode(graphs[1], None, 0, copy(a, b, 4), context))
    execs = [ok(cu.cuGraphInstantiate(graph, 0)) for graph in graphs]
    ok(cu.cuModuleUnload(loaded))
    ok(cu.cuMemFree(b))
    found = []
    for exec_ in execs:  # on a library that posts launches the error is that of the next call
        codes = [int(cu.cuGraphLaunch(exec_, 0)[0]), int(cu.cuCtxSynchronize()[0])]
        found.append(name_of(next(code for code in codes if code)))
        ok(cu.cuCtxSynchronize())
    assert found == [BAD_HANDLE, BAD_VALUE], found
    for exec_ in execs:
        ok(cu.cuGraphExecDestroy(exec_))
    return found


def a_graph_belongs_to_its_context() -> Any:
    first = ok(cu.cuCtxGetCurrent())
    second = ok(cu.cuCtxCreate(None, 0, 0))
    there, graph = to_device(floats(1)), ok(cu.cuGraphCreate(0))
    ok(cu.cuGraphAddMemsetNode(graph, None, 0, fill(there, 7, 4, COUNT), second))
    exec_ = ok(cu.cuGraphInstantiate(graph, 0))
    ok(cu.cuCtxSetCurrent(first))
    found = [error(cu.cuGraphLaunch(exec_, 0)), error(cu.cuGraphInstantiate(graph, 0))]
    ok(cu.cuCtxSetCurrent(second))
    ok(cu.cuGraphLaunch(exec_, 0))
    assert (from_device(there, np.zeros(COUNT, np.uint32)) == 7).all()
    ok(cu.cuCtxDestroy(second))
    ok(cu.cuCtxSetCurrent(first))
    ok(cu.cuGraphExecDestroy(exec_))
    ok(cu.cuCtxSynchronize())
    assert found[0] == "CUDA_ERROR_INVALID_CONTEXT", found
    assert found[1] in (UNSUPPORTED, BAD_VALUE), found
    return found


def a_fault_inside_shows_at_the_next_call() -> Any:
    context = ok(cu.cuCtxCreate(None, 0, 0))
    bad = function(module("language"), "bad_address")
    there, graph = to_device(floats(1)), ok(cu.cuGraphCreate(0))
    first = ok(
        cu.cuGraphAddKernelNode(graph, None, 0, kernel(bad, (there, 1 << 40), (None, ctypes.c_longlong), blocks=1))
    )
    ok(cu.cuGraphAddMemsetNode(graph, [first], 1, fill(there, 7, 4, COUNT), context))
    exec_ = ok(cu.cuGraphInstantiate(graph, 0))
    found = [error(cu.cuGraphLaunch(exec_, 0)), error(cu.cuCtxSynchronize()), error(cu.cuMemAlloc(16))]
    ok(cu.cuCtxDestroy(context))
    assert found == ["CUDA_SUCCESS", BAD_ADDRESS, BAD_ADDRESS], found
    return found


CASES: list[Callable[[], Any]] = [
    a_chain_runs_in_the_order_of_its_dependencies,
    a_circle_is_refused,
    parameters_are_copied_and_change_for_the_next_launch_only,
    the_oldest_forms_of_the_calls_work_too,
    mistakes_are_named,
    what_is_gone_at_launch_is_an_error_and_not_a_crash,
    a_graph_belongs_to_its_context,
    a_fault_inside_shows_at_the_next_call,
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
