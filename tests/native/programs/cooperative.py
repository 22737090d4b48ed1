"""Cooperative launches and other attributes of launches, as every libcuda must have them; one line per case."""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from typing import Any

import gpu
import numpy as np
from cuda.bindings import driver as cu
from gpu import error, from_device, function, name_of, ok, to_device

TOO_LARGE, UNSUPPORTED = "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "CUDA_ERROR_NOT_SUPPORTED"
BAD_VALUE = "CUDA_ERROR_INVALID_VALUE"
library = ctypes.CDLL("libcuda.so.1")

# Each round every block adds the sum of all blocks' numbers of the round before to its own: wrong unless all wait for
# all. The barrier is that of NVIDIA's cooperative groups: a counter in the workspace whose address %envreg1
# (the upper half) and %envreg2 hold; block 0 adds what makes its top bit flip when the last block has come.
ROUNDS = """
.version 7.0
.target sm_70
.address_size 64
.visible .entry rounds(.param .u64 numbers, .param .u32 count, .param .u64 kept)
{
    .reg .pred %p<6>;
    .reg .b32 %r<40>;
    .reg .b64 %rd<12>;
    .shared .align 4 .b32 before;
    ld.param.u64 %rd1, [numbers];
    ld.param.u32 %r1, [count];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %nctaid.x;
    mov.u32 %r4, %tid.x;
    mov.u32 %r5, %envreg1;
    mov.u32 %r6, %envreg2;
    mov.b64 %rd2, {%r6, %r5};
    setp.ne.s64 %p1, %rd2, 0;
    @%p1 bra VALID;
    trap;
VALID:
    add.s64 %rd3, %rd2, 4;
    mul.wide.u32 %rd4, %r2, 4;
    add.s64 %rd4, %rd1, %rd4;
    setp.eq.u32 %p2, %r4, 0;
    mov.u32 %r7, 0;
ROUND:
    setp.ge.u32 %p3, %r7, %r1;
    @%p3 bra END;
    mov.u32 %r8, 0;
    mov.u32 %r9, 0;
SUM:
    mul.wide.u32 %rd5, %r9, 4;
    add.s64 %rd5, %rd1, %rd5;
    ld.volatile.global.u32 %r10, [%rd5];
    add.u32 %r8, %r8, %r10;
    add.u32 %r9, %r9, 1;
    setp.lt.u32 %p4, %r9, %r3;
    @%p4 bra SUM;
    @%p2 st.shared.u32 [before], %r8;
    bra.uni WAIT1;
BACK1:
    @%p2 ld.shared.u32 %r11, [before];
    @%p2 ld.global.u32 %r12, [%rd4];
    @%p2 add.u32 %r12, %r12, %r11;
    @%p2 st.global.u32 [%rd4], %r12;
    mov.u32 %r20, 1;
    bra.uni WAIT;
WAIT1:
    mov.u32 %r20, 0;
WAIT:
    barrier.sync 0;
    @!%p2 bra GATHERED;
    mov.u32 %r13, 1;
    setp.eq.u32 %p5, %r2, 0;
    @!%p5 bra ARRIVE;
    sub.u32 %r14, %r3, 1;
    mov.u32 %r15, 0x80000000;
    sub.u32 %r13, %r15, %r14;
ARRIVE:
    membar.gl;
    atom.global.add.u32 %r16, [%rd3], %r13;
SPIN:
    ld.volatile.global.u32 %r17, [%rd3];
    xor.b32 %r18, %r17, %r16;
    setp.gt.s32 %p5, %r18, -1;
    @%p5 bra SPIN;
    membar.gl;
GATHERED:
    barrier.sync 0;
    setp.eq.u32 %p5, %r20, 0;
    @%p5 bra BACK1;
    add.u32 %r7, %r7, 1;
    bra.uni ROUND;
END:
    ret;
}
"""


def expected(blocks: int, rounds: int) -> list[int]:
    numbers = np.arange(blocks, dtype=np.uint32)
    for _ in range(rounds):
        numbers = numbers + numbers.sum(dtype=np.uint32)
    return [int(number) for number in numbers]


def rounds() -> Any:
    return function(ok(cu.cuModuleLoadData(ROUNDS.encode() + b"\0")), "rounds")


def arguments(there: Any, count: int) -> Any:
    return ((there, count, there), (None, ctypes.c_int, None))


def blocks_wait_for_one_another() -> Any:
    kernel, found = rounds(), []
    for blocks, threads, count in ((1, 32, 3), (4, 64, 20), (16, 33, 5), (2, 1024, 3)):
        there = to_device(np.arange(blocks, dtype=np.uint32))
        ok(cu.cuLaunchCooperativeKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, 0, arguments(there, count)))
        numbers = from_device(there, np.zeros(blocks, np.uint32)).tolist()
        assert numbers == expected(blocks, count), (blocks, threads, numbers)
        found.append(numbers)
    return found


def a_grid_that_does_not_fit_at_once_is_refused() -> Any:
    kernel, there = rounds(), to_device(np.arange(64, dtype=np.uint32))
    most = [int(ok(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(kernel, threads, 0))) for threads in (32, 512, 1024)]
    found = [most, int(ok(cu.cuDeviceGetAttribute(cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 0)))]
    for grid, threads in (((most[0] + 1, 1, 1), 32), ((1 << 30, 4, 1), 32), ((most[2] + 1, 1, 1), 1024)):
        answer = cu.cuLaunchCooperativeKernel(kernel, *grid, threads, 1, 1, 0, 0, arguments(there, 1))
        found.append(error(answer))
    ok(cu.cuCtxSynchronize())
    assert found == [[16, 4, 2], 1, TOO_LARGE, TOO_LARGE, TOO_LARGE], found
    return found


def an_ordinary_launch_has_no_workspace() -> Any:
    context = ok(cu.cuCtxCreate(None, 0, 0))
    there = to_device(np.arange(4, dtype=np.uint32))
    ok(cu.cuLaunchKernel(rounds(), 4, 1, 1, 32, 1, 1, 0, 0, arguments(there, 1), 0))
    found = error(cu.cuCtxSynchronize())
    ok(cu.cuCtxDestroy(context))
    assert found == "CUDA_ERROR_LAUNCH_FAILED", found
    return found


class Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (("id", ctypes.c_uint), ("pad", ctypes.c_uint), ("value", ctypes.c_uint * 16))


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    )


def launch_with(kernel: Any, there: Any, blocks: int, *attributes: tuple[int, ...], stream: int = 0) -> str:
    """Adds one round; the error of the launch, or of what follows it."""
    listed = (Attribute * max(len(attributes), 1))()
    for at, (number, *values) in zip(listed, attributes, strict=False):
        at.id = number
        at.value[: len(values)] = values
    config = Config((blocks, 1, 1), (32, 1, 1), 0, stream, ctypes.addressof(listed), len(attributes))
    address, count = ctypes.c_uint64(int(there)), ctypes.c_int(1)
    pointers = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in (address, count, address)))
    result = library.cuLaunchKernelEx(ctypes.byref(config), ctypes.c_void_p(int(kernel)), pointers, None)
    return name_of(result or library.cuCtxSynchronize())


COOPERATIVE, CLUSTER, SERIALISATION, PRIORITY = 2, 4, 6, 8


def attributes_travel_with_their_launch() -> Any:
    kernel, there = rounds(), to_device(np.arange(4, dtype=np.uint32))
    cooperative, tuning = (
        (COOPERATIVE, 1),
        [(0, 9), (3, 1), (5, 1), (SERIALISATION, 1), (PRIORITY, 5), (10, 0), (14, 7)],
    )
    found = {
        "cooperative": launch_with(kernel, there, 4, cooperative),
        "with hints": launch_with(kernel, there, 4, *tuning, cooperative),
        "a cluster of one": launch_with(kernel, there, 4, (CLUSTER, 1, 1, 1), cooperative),
        "too large": launch_with(kernel, there, 17, cooperative),
        "a cluster of two": launch_with(kernel, there, 4, (CLUSTER, 2, 1, 1), cooperative),
        "an access window": launch_with(kernel, there, 4, (1,), cooperative),
        "an event": launch_with(kernel, there, 4, (7,), cooperative),
        "unknown": launch_with(kernel, there, 4, (999,), cooperative),
        "too many": launch_with(kernel, there, 4, *([(PRIORITY, 1)] * 9)),
    }
    numbers = from_device(there, np.zeros(4, np.uint32)).tolist()
    assert numbers == expected(4, 3), numbers
    good = dict.fromkeys(list(found)[:3], "CUDA_SUCCESS")
    assert found == good | {
        "too large": TOO_LARGE,
        "a cluster of two": UNSUPPORTED,
        "an access window": UNSUPPORTED,
        "an event": UNSUPPORTED,
        "unknown": UNSUPPORTED,
        "too many": BAD_VALUE,
    }, found
    return found


def a_captured_launch_keeps_its_attributes() -> Any:
    kernel, there = rounds(), to_device(np.arange(4, dtype=np.uint32))
    stream = ok(cu.cuStreamCreate(1))
    ok(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    ok(cu.cuLaunchCooperativeKernel(kernel, 4, 1, 1, 64, 1, 1, 0, stream, arguments(there, 1)))
    graph = ok(cu.cuStreamEndCapture(stream))
    exec_ = ok(cu.cuGraphInstantiate(graph, 0))
    ok(cu.cuGraphLaunch(exec_, stream))
    node = cu.CUDA_KERNEL_NODE_PARAMS()
    node.func = kernel
    node.gridDimX, node.gridDimY, node.gridDimZ = 4, 1, 1
    node.blockDimX, node.blockDimY, node.blockDimZ = 32, 1, 1
    node.kernelParams = arguments(there, 2)
    ok(cu.cuGraphExecKernelNodeSetParams(exec_, ok(cu.cuGraphGetNodes(graph, 1))[0][0], node))
    ok(cu.cuGraphLaunch(exec_, stream))
    ok(cu.cuStreamSynchronize(stream))
    numbers = from_device(there, np.zeros(4, np.uint32)).tolist()
    assert numbers == expected(4, 3), numbers
    return numbers


CASES: list[Callable[[], Any]] = [
    blocks_wait_for_one_another,
    a_grid_that_does_not_fit_at_once_is_refused,
    an_ordinary_launch_has_no_workspace,
    attributes_travel_with_their_launch,
    a_captured_launch_keeps_its_attributes,
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
