"""Parameters of a kernel up to CUDA's 32,764 bytes, on the device itself and behind the proxy."""

from __future__ import annotations

from typing import Any

import pytest

LARGE = """
import ctypes, json
import gpu
from gpu import *
from cuda.bindings import driver as cu
import numpy as np
gpu.begin()

def text(version, words):
    sums = "".join(f"ld.param.u32 %r1, [s+{4 * at}]; add.u32 %r2, %r2, %r1;" for at in range(0, words, 8))
    return f'''.version {version}
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .align 4 .b8 s[{4 * words}]) {{
.reg .b32 %r<3>; .reg .b64 %rd<2>; mov.u32 %r2, 0; {sums}
ld.param.u64 %rd1, [out]; st.global.u32 [%rd1], %r2; ret; }}'''.encode() + b"\\0"

found = []
for words in (1022, 1023, 3000, 8189):  # with the address: 4096 bytes, 4100, 12,008 and 32,764
    kernel = function(ok(cu.cuModuleLoadData(text("8.1", words))), "k")
    out, values = to_device(np.zeros(1, np.uint32)), np.arange(7, 7 + words, dtype=np.uint32)
    for _ in range(20):  # launches are posted: many are under way
        values += 1
        pointer = ctypes.c_uint64(int(out))
        pointers = np.array([ctypes.addressof(pointer), values.ctypes.data], np.uint64)
        ok(cu.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, pointers.ctypes.data, 0))
    assert from_device(out, np.zeros(1, np.uint32))[0] == values[::8].sum(), words
    found.append(int(values[::8].sum()))
found += [error(cu.cuModuleLoadData(text("8.1", 8190))), error(cu.cuModuleLoadData(text("8.0", 1023)))]
print(json.dumps(found))
"""


@pytest.mark.parametrize("transport", ["shm", "unix-socket"])
def test_large_parameters_arrive_whole(nursery: Any, transport: str) -> None:
    direct = nursery.run(LARGE, nursery.direct())
    assert direct.count("CUDA_ERROR_INVALID_PTX") == 2, "more than CUDA allows, and more than PTX 8.0 allowed"
    assert nursery.run(LARGE, nursery.proxy().environment(transport)) == direct
