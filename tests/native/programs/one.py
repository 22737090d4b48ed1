"""One piece of PTX over arrays: a thread for each element, registers %a %b %c in, %d out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from device import Array, Buffer, Module, launch

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"


def kernel(body: str, sizes: Sequence[int], out: int, more: str = "") -> str:
    """PTX of a kernel `k(out, in...)`; sizes are those of one element in bytes, `more` stands before the kernel."""
    names = "abcefg"[: len(sizes)]
    registers = "".join(f".reg .b{8 * size} %{name};\n" for name, size in zip(names, sizes, strict=True))
    loads = "".join(
        f"ld.param.u64 %at, [p{name}];\nmad.wide.u32 %at, %i, {size}, %at;\nld.global.b{8 * size} %{name}, [%at];\n"
        for name, size in zip(names, sizes, strict=True)
    )
    parameters = ", ".join(f".param .u64 p{name}" for name in ("d", *names))
    return f"""{HEAD}{more}
.visible .entry k({parameters})
{{
.reg .b{8 * out} %d;
{registers}.reg .b64 %at;
.reg .b32 %i, %n, %r<16>;
.reg .b16 %h<8>;
.reg .b64 %rd<8>;
.reg .pred %p<8>;
mov.u32 %i, %ctaid.x;
mov.u32 %n, %ntid.x;
mad.lo.u32 %i, %i, %n, 0;
mov.u32 %n, %tid.x;
add.u32 %i, %i, %n;
{loads}{body}
ld.param.u64 %at, [pd];
mad.wide.u32 %at, %i, {out}, %at;
st.global.b{8 * out} [%at], %d;
ret;
}}
"""


def apply(body: str, inputs: Sequence[Array], out: type[np.generic], more: str = "") -> Array:
    """What the piece makes of every element; the arrays have the same length, a multiple of 32 or less than 1024."""
    count = len(inputs[0])
    block = count if count <= 32 else 32
    assert count % block == 0
    module = Module(kernel(body, [array.dtype.itemsize for array in inputs], np.dtype(out).itemsize, more))
    result = Buffer(np.zeros(count, out))
    buffers = [Buffer(array) for array in inputs]
    launch(module.kernel("k"), (count // block,), (block,), result, *buffers)
    found = result.read()
    for buffer in (result, *buffers):
        buffer.free()
    return found
