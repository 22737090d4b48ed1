"""Ways to write an operand that real compilers use, on the software device."""

from __future__ import annotations

import json
from typing import Any

import pytest

HEAD = ".version 8.0\\n.target sm_80\\n.address_size 64\\n"


def stored(on_software: Any, body: str, declared: str = "") -> list[int]:
    """The eight words that a kernel of one thread leaves at `out`; %rd1 is its address."""
    program = f"""
import json
import numpy as np
from device import *
start()
text = '''{HEAD}{declared}
.visible .entry k(.param .u64 out) {{ .reg .b32 %r<9>; .reg .b64 %rd<9>;
ld.param.u64 %rd1, [out];
{body}
ret; }}'''
out = Buffer(np.zeros(8, np.uint32))
launch(Module(text).kernel("k"), (1,), (1,), out)
print(json.dumps(out.read().tolist()))
"""
    found: list[int] = json.loads(on_software(program).stdout)
    return found


@pytest.mark.parametrize(
    ("declared", "index", "word"),
    [
        (".shared .align 16 .b8 local0[32];", 0, 0),
        (".shared .align 16 .b8 local0[32];", 8, 2),
        (".shared .align 16 .b32 local0[8];", 3, 3),  # an index counts elements
        (".local .align 8 .b64 local0[4];", 1, 2),
        (".global .align 4 .u32 local0[8];", 7, 7),
    ],
)
def test_a_name_with_an_index_is_the_address_of_that_element(
    on_software: Any, declared: str, index: int, word: int
) -> None:
    space = declared.split()[0]
    fill = "".join(f"mov.u32 %r1, {100 + i}; st{space}.u32 [local0+{4 * i}], %r1;\n" for i in range(8))
    read = f"""
mov.u64 %rd2, local0[{index}]; ld{space}.u32 %r2, [%rd2]; st.global.u32 [%rd1], %r2;
ld{space}.u32 %r3, local0[{index}]; st.global.u32 [%rd1+4], %r3;"""
    assert stored(on_software, declared + fill + read)[:2] == [100 + word] * 2


def test_one_register_may_stand_in_braces(on_software: Any) -> None:
    store = "mov.u32 %r1, 7; st.global.b32 [%rd1], { %r1 };"
    load = "ld.global.b32 { %r2 }, [ %rd1 + 0 ]; st.global.b32 [%rd1+4], %r2;"
    assert stored(on_software, store + load)[:2] == [7, 7]


def test_a_variable_inside_of_a_function_is_one_however_often_it_is_called(on_software: Any) -> None:
    count = """
.func (.param .b32 before) count() { .global .u32 calls; .reg .b32 %x;
atom.global.add.u32 %x, [calls], 1; st.param.b32 [before], %x; }"""
    call = "{ .param .b32 got; call (got), count; ld.param.b32 %r1, [got]; } st.global.u32 [%rd1+AT], %r1;\n"
    body = "".join(call.replace("AT", str(4 * i)) for i in range(8))
    assert stored(on_software, body, count) == list(range(8))
