"""Errors on the software device are CUDA's, name what happened, and never end the process."""

from __future__ import annotations

import json
from typing import Any

import pytest

HEAD = ".version 8.0\\n.target sm_75\\n.address_size 64\\n"
BEGIN = """
import ctypes, json
import numpy as np
from device import *
"""


def answers(on_software: Any, program: str, **settings: str) -> Any:
    return json.loads(on_software(BEGIN + program, **settings).stdout)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%rd1, {%r1}];", "tex.1d.v4.f32.s32"),
        ("wmma.load.a.sync.aligned.row.m8n8k32.s4 {%r1}, [%rd1], 32;", "wmma.load.a.sync.aligned.row.m8n8k32.s4"),
        ("add.rz.bf16x2 %r1, %r1, %r2;", "add.rz.bf16x2"),
        ("ld.global.v4.b128 %r1, [%rd1];", "ld.global.v4.b128"),
        ("mov.u32 %r1, %envreg3;", "%envreg3"),
        (".tex .u32 t;", ".tex"),
        ("call vprintf, (%r1);", "vprintf"),
    ],
)
def test_what_it_does_not_know_is_named(on_software: Any, body: str, named: str) -> None:
    program = f"""
start()
ptx = b"{HEAD}.visible .entry k() {{ .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>; {body} }}\\0"
log = bytearray(400)
options = [driver.CUjit_option.CU_JIT_ERROR_LOG_BUFFER, driver.CUjit_option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
answer = driver.cuModuleLoadDataEx(ptx, 2, options, [log, 400])
again = driver.cuModuleLoadData(ptx)
print(json.dumps([error_of(answer), log.split(b"\\0")[0].decode(), error_of(again)]))
"""
    done = on_software(BEGIN + program)
    code, log, again = json.loads(done.stdout)
    assert code == again == "CUDA_ERROR_INVALID_PTX"
    assert named in log
    assert done.stderr.count(named) == 1, "said once, not twice"


def test_bad_pointers_and_ranges_are_invalid_values(on_software: Any) -> None:
    found = answers(
        on_software,
        """
start()
p = int(check(driver.cuMemAlloc(1000)))
host = np.zeros(4096, np.uint8).ctypes.data
print(json.dumps([error_of(answer) for answer in (
    driver.cuMemcpyHtoD(p + 1, host, 1000), driver.cuMemcpyHtoD(p - 1, host, 1), driver.cuMemcpyDtoH(host, p, 1001),
    driver.cuMemcpyDtoH(host, 64, 4), driver.cuMemcpyDtoD(p, p + 999, 2), driver.cuMemsetD8(p, 1, 2**40),
    driver.cuMemsetD32(p + 1, 1, 1), driver.cuMemFree(p + 8), driver.cuMemcpyDtoH(host, host, 4), driver.cuMemAlloc(0),
)]))
""",
    )
    assert set(found) == {"CUDA_ERROR_INVALID_VALUE"}


def test_a_stale_pointer_is_an_invalid_value(on_software: Any) -> None:
    found = answers(
        on_software,
        """
start()
p = int(check(driver.cuMemAlloc(64)))
check(driver.cuMemFree(p))
host = np.zeros(64, np.uint8).ctypes.data
print(json.dumps([error_of(driver.cuMemcpyDtoH(host, p, 64)), error_of(driver.cuMemFree(p))]))
""",
    )
    assert found == ["CUDA_ERROR_INVALID_VALUE"] * 2


def test_memory_of_another_context_is_out_of_reach_for_copies_and_kernels(on_software: Any) -> None:
    found = answers(
        on_software,
        """
start()
secret = Buffer(np.full(64, 7, np.int32))
start()
mine = Buffer(np.zeros(64, np.int32))
copied = error_of(driver.cuMemcpyDtoD(mine.pointer, secret.pointer, 256))
freed = error_of(driver.cuMemFree(secret.pointer))
launch(load("vector").kernel("vector_add"), (1,), (32,), secret, secret, mine, 32)
print(json.dumps([copied, freed, error_of(driver.cuCtxSynchronize())]))
""",
    )
    assert found == ["CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_ILLEGAL_ADDRESS"]


def test_out_of_memory_and_back(on_software: Any) -> None:
    found = answers(
        on_software,
        """
start()
free, total = check(driver.cuMemGetInfo())
half = check(driver.cuMemAlloc(total // 2))
too_much = error_of(driver.cuMemAlloc(total // 2 + 1))
check(driver.cuMemFree(half))
whole = check(driver.cuMemAlloc(total))
none_left = check(driver.cuMemGetInfo())[0]
print(json.dumps([total, free, too_much, none_left, error_of(driver.cuMemAlloc(1))]))
""",
        GPUTAX_SOFT_MEMORY_MB="64",
    )
    assert found == [64 << 20, 64 << 20, "CUDA_ERROR_OUT_OF_MEMORY", 0, "CUDA_ERROR_OUT_OF_MEMORY"]


@pytest.mark.parametrize("size", [4096, 3 << 20])
@pytest.mark.parametrize("end", ["check(driver.cuMemFree(p))", "check(driver.cuCtxDestroy(context)); start()"])
def test_freed_memory_is_zero_when_it_is_handed_out_again(on_software: Any, size: int, end: str) -> None:
    found = answers(
        on_software,
        f"""
context = start()
p = int(check(driver.cuMemAlloc({size})))
check(driver.cuMemsetD8(p, 0xAB, {size}))
{end}
again = int(check(driver.cuMemAlloc({size})))
out = np.ones({size}, np.uint8)
check(driver.cuMemcpyDtoH(out.ctypes.data, again, {size}))
print(json.dumps([p == again, int(out.max())]))
""",
    )
    assert found == [True, 0]


def test_a_fault_is_sticky_in_its_context_and_nowhere_else(on_software: Any) -> None:
    found = answers(
        on_software,
        """
good = start()
bad = start()
out = Buffer(np.zeros(8, np.int32))
kernel = load("language").kernel("bad_address")
launch(kernel, (1,), (32,), out, ctypes.c_int64(-1))  # the launch itself succeeds
after = [error_of(driver.cuCtxSynchronize()), error_of(driver.cuMemAlloc(16)),
         error_of(driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)), error_of(driver.cuStreamCreate(0))]
check(driver.cuCtxDestroy(bad))
check(driver.cuCtxSetCurrent(good))
print(json.dumps([after, error_of(driver.cuCtxSynchronize())]))
""",
    )
    assert found == [["CUDA_ERROR_ILLEGAL_ADDRESS"] * 4, "CUDA_SUCCESS"]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("ld.global.u32 %r1, [%rd1+2];", "CUDA_ERROR_MISALIGNED_ADDRESS"),
        ("ld.shared.u32 %r1, [64];", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("mov.u32 %r2, 4294967292; st.shared.u32 [%r2], %r1;", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("ld.local.u32 %r1, [1048576];", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("mov.u64 %rd2, 0; ld.u32 %r1, [%rd2];", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("mov.u64 %rd2, 1152921504606847000; ld.u32 %r1, [%rd2];", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("mov.u64 %rd2, 8; ld.param.u32 %r1, [%rd2];", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("trap;", "CUDA_ERROR_LAUNCH_FAILED"),
        ("bar.sync 99;", "CUDA_ERROR_ILLEGAL_INSTRUCTION"),
        ("setp.eq.s32 %p1, %r1, 0; @%p1 bar.sync 1, 64;", "CUDA_ERROR_LAUNCH_TIMEOUT"),
        ("again: bra again;", "CUDA_ERROR_LAUNCH_TIMEOUT"),
    ],
)
def test_faults_in_kernels(on_software: Any, body: str, error: str) -> None:
    found = answers(
        on_software,
        f"""
start()
ptx = "{HEAD}.visible .entry k(.param .u64 p) {{ .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>; "
ptx += "ld.param.u64 %rd1, [p]; {body} ret; }}"
launch(Module(ptx).kernel("k"), (1,), (32,), Buffer(np.zeros(8, np.int32)))
print(json.dumps(error_of(driver.cuCtxSynchronize())))
""",
        GPUTAX_SOFT_TIMEOUT_S="0.2",
    )
    assert found == error


def test_a_grid_without_end_is_ended(on_software: Any) -> None:
    found = answers(
        on_software,
        """
start()
launch(load("micro").kernel("nothing"), (1, 65535, 65535), (1,))
print(json.dumps(error_of(driver.cuCtxSynchronize())))
""",
        GPUTAX_SOFT_TIMEOUT_S="0.3",
    )
    assert found == "CUDA_ERROR_LAUNCH_TIMEOUT"


def test_bad_launches_are_refused(on_software: Any) -> None:
    found = answers(
        on_software,
        """
start()
kernel = load("reduce").kernel("block_sum")
x = Buffer(np.zeros(64, np.float32))
def attempt(grid, block, shared=0):
    try:
        launch(kernel, grid, block, x, x, 64, shared=shared)
    except CudaError as error:
        return str(error)
before = attempt((1,), (64,), 60000)
check(driver.cuFuncSetAttribute(
    kernel, driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000))
print(json.dumps([attempt((0,), (1,)), attempt((1,), (1025,)), attempt((1, 70000), (1,)), attempt((1,), (1, 1, 65)),
                  before, attempt((1,), (64,), 60000)]))
""",
    )
    assert found == ["CUDA_ERROR_INVALID_VALUE"] * 5 + [None]


def test_handles_that_are_not_alive_are_invalid(on_software: Any) -> None:
    found = answers(
        on_software,
        """
context = start()
stream, event = check(driver.cuStreamCreate(0)), check(driver.cuEventCreate(0))
module = load("micro")
kernel = module.kernel("nothing")
check(driver.cuStreamDestroy(stream)); check(driver.cuEventDestroy(event)); check(driver.cuModuleUnload(module.handle))
print(json.dumps([error_of(answer) for answer in (
    driver.cuStreamSynchronize(stream), driver.cuStreamDestroy(stream), driver.cuEventRecord(event, 0),
    driver.cuEventDestroy(event), driver.cuModuleUnload(module.handle), driver.cuModuleGetFunction(module.handle, b"k"),
    driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0), driver.cuStreamSynchronize(driver.CUstream(0xDEAD00)),
)]))
""",
    )
    assert set(found) == {"CUDA_ERROR_INVALID_HANDLE"}


def test_names_that_are_not_there(on_software: Any) -> None:
    found = answers(
        on_software,
        """
start()
module = load("micro")
print(json.dumps([error_of(driver.cuModuleGetFunction(module.handle, b"absent")),
                  error_of(driver.cuModuleGetGlobal(module.handle, b"absent")),
                  error_of(driver.cuModuleLoadData(b"\\x7fELF binary\\0")),
                  error_of(driver.cuModuleLoadData(b"rubbish\\0"))]))
""",
    )
    assert found[:3] == ["CUDA_ERROR_NOT_FOUND", "CUDA_ERROR_NOT_FOUND", "CUDA_ERROR_NO_BINARY_FOR_GPU"]
    assert found[3] in ("CUDA_ERROR_INVALID_PTX", "CUDA_ERROR_INVALID_IMAGE")


@pytest.mark.parametrize(
    ("name", "value"),
    [("GPUTAX_SOFT_MEMORY_MB", "0"), ("GPUTAX_SOFT_KERNEL_US", "-1"), ("GPUTAX_SOFT_COPY_GBPS", "fast")],
)
def test_a_bad_setting_is_said_and_refused(on_software: Any, name: str, value: str) -> None:
    done = on_software(BEGIN + "print(json.dumps(error_of(driver.cuInit(0))))", **{name: value})
    assert json.loads(done.stdout) == "CUDA_ERROR_INVALID_VALUE"
    assert f"{name}={value}" in done.stderr
