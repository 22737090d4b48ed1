"""What a hostile tenant loads: python hostile.py NAME prints the results of its calls as one JSON line."""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from typing import Any

import gpu
import numpy as np
from cuda.bindings import driver as cu
from gpu import error, from_device, function, launch, ok, to_device

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
REGISTERS = ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<9>;"


def kernel(body: str, parameters: str = "") -> bytes:
    return f"{HEAD}.visible .entry k({parameters}) {{ {REGISTERS}\n{body}\nret; }}\n\0".encode()


def load(text: bytes) -> str:
    return error(cu.cuModuleLoadData(text))


def branch_targets_twice() -> list[str]:
    """A list of branch targets that is given twice; if it loads, its targets behind the table are tried."""
    lists = "T: .branchtargets L0;\n" * 64
    text = kernel(f"{lists} mov.u32 %r1, 63; brx.idx %r1, T; L0:")
    answer = cu.cuModuleLoadData(text)
    found = [error(answer)]
    if found == ["CUDA_SUCCESS"]:
        launch(function(answer[1], "k"), (1,), (32,), ())
        found.append(error(cu.cuCtxSynchronize()))
    return found


def branch_targets_and_label() -> list[str]:
    """One name for a list of targets and a place, in both orders."""
    both = "T: .branchtargets L0;\nT: L0: mov.u32 %r1, 0; brx.idx %r1, T;"
    turned = "T: L0: mov.u32 %r1, 0;\nT: .branchtargets L0; brx.idx %r1, T;"
    return [load(kernel(both)), load(kernel(turned))]


def index_behind_the_list() -> list[str]:
    """An index that the list does not have ends the context, and nothing else."""
    loaded = ok(cu.cuModuleLoadData(kernel("T: .branchtargets L0; mov.u32 %r1, 1; brx.idx %r1, T; L0:")))
    launch(function(loaded, "k"), (1,), (32,), ())
    return [error(cu.cuCtxSynchronize())]


def exclamation_marks() -> list[str]:
    """300 KB of `!` before a predicate: an even count of them means nothing, an odd one the opposite."""
    loads, results = [], np.zeros(2, np.uint32)
    there = to_device(results)
    for more in (0, 1):
        body = f"""
setp.eq.u32 %p1, 0, 0;
and.pred %p2, {"!" * (300_000 + more)}%p1, %p1;
selp.u32 %r1, 1, 2, %p2;
ld.param.u64 %rd1, [out];
st.global.u32 [%rd1], %r1;"""
        answer = cu.cuModuleLoadData(kernel(body, ".param .u64 out"))
        loads.append(error(answer))
        launch(function(answer[1], "k"), (1,), (1,), (cu.CUdeviceptr(int(there) + 4 * more),))
    return [*loads, *map(str, from_device(there, results).tolist())]


def without_end() -> list[str]:
    """A function that calls itself without end: it may be loaded, and faults when it runs."""
    loaded = ok(cu.cuModuleLoadData(f"{HEAD}.func f() {{ call f; }} .entry k() {{ call f; }}\0".encode()))
    launch(function(loaded, "k"), (1,), (32,), ())
    return [error(cu.cuCtxSynchronize())]


def deep_nesting() -> list[str]:
    """Braces of blocks, of first values, and calls, each far deeper than anybody needs."""
    many = 100_000
    functions = "".join(f".func f{i}() {{ call f{i + 1}; }}\n" for i in range(many // 10))
    return [
        load(kernel("{" * many + "}" * many)),
        load(f"{HEAD}.global .u32 x[4] = {'{' * many}1{'}' * many};\n\0".encode()),
        load(f"{HEAD}{functions}.entry k() {{ call f0; }}\0".encode()),
        *without_end(),
    ]


def padding_of_parameters() -> list[str]:
    """Bytes between two parameters are nobody's: they read as zero, not as what lay in the proxy's memory."""
    body = "ld.param.u64 %rd1, [out];\n" + "".join(
        f"ld.param.u32 %r1, [a+{at}]; st.global.u32 [%rd1+{at}], %r1;\n" for at in range(4, 256, 4)
    )
    loaded = ok(
        cu.cuModuleLoadData(kernel(body, ".param .u64 out, .param .align 256 .u32 a, .param .align 256 .u32 b"))
    )
    back = np.zeros(64, np.uint32)
    there = to_device(back)
    launch(function(loaded, "k"), (1,), (1,), (there, (7, ctypes.c_uint32), (9, ctypes.c_uint32)))
    return [str(int(from_device(there, back).any()))]


def large_variables() -> list[str]:
    """Variables of 900 MiB under a small quota, in the module and in a body; then the whole quota is still there."""
    before = ok(cu.cuMemGetInfo())[0]
    found = [
        load(f"{HEAD}.visible .global .align 4 .b8 big[{900 << 20}];\n\0".encode()),
        load(kernel(f".global .align 4 .b8 big[{900 << 20}]; mov.u64 %rd1, big;")),
        load(f"{HEAD}{''.join(f'.global .u32 x{i}[{1 << 18}];' for i in range(100))}\n\0".encode()),
    ]
    return [*found, str(ok(cu.cuMemGetInfo())[0] == before), error(cu.cuMemAlloc(before))]


def variables_in_bodies() -> list[str]:
    """32 loads and unloads of 32 MiB, half of them inside of a function that is called twice."""
    inside = f".global .align 4 .b8 big[{16 << 20}]; mov.u64 %rd1, big;"
    called = f"{HEAD}.func f() {{ {REGISTERS} {inside} }} .entry k() {{ {REGISTERS} {inside} call f; call f; }}\n\0"
    before, after = ok(cu.cuMemGetInfo())[0], []
    for _ in range(32):
        loaded = ok(cu.cuModuleLoadData(called.encode()))
        taken = before - ok(cu.cuMemGetInfo())[0]
        assert 32 << 20 <= taken < 33 << 20, taken
        ok(cu.cuModuleUnload(loaded))
        after.append(ok(cu.cuMemGetInfo())[0])
    return [str(after == [before] * 32), error(cu.cuMemAlloc(60 << 20))]


def code_that_grows() -> list[str]:
    """Functions that call the next one twice: 3 KB of text would become a million instructions, or take for ever."""

    def doubling(body: str) -> bytes:
        calls = "".join(f".func f{i}() {{ call f{i + 1}; call f{i + 1}; }}\n" for i in range(28))
        turned = "\n".join(reversed(calls.splitlines()))
        return f"{HEAD}.func f28() {{ {body} }}\n{turned}\n.entry k() {{ call f0; }}\n\0".encode()

    before = ok(cu.cuMemGetInfo())[0]
    found = [load(doubling("trap;")), load(doubling("")), load(b";" * (1 << 20) + b"\0")]
    return [*found, str(ok(cu.cuMemGetInfo())[0] == before)]


CASES: dict[str, Callable[[], Any]] = {
    case.__name__: case
    for case in (
        branch_targets_twice,
        branch_targets_and_label,
        index_behind_the_list,
        exclamation_marks,
        deep_nesting,
        padding_of_parameters,
        large_variables,
        variables_in_bodies,
        code_that_grows,
    )
}


def main() -> None:
    gpu.begin()
    print(json.dumps(CASES[sys.argv[1]]()))


main()
