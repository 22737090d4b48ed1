"""Calls on the software device: through pointers, virtual, recursive; printf and assert of kernels; what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

LINES = """\
-7|   42|42   |00042|+42|4000000000|beef|0XFF|10|z|%|-1234567890123|fedcba9876543210
1.500000|2.35|  -3.000|1.234568e+04|1e-07|0x1p+0|    99|kernel text|ker|kernel text|%q|4464
thread 0 of block {block}, 12
"""


def last(output: str) -> Any:
    return json.loads(output.splitlines()[-1])


def test_pointers_to_functions(on_software: Any) -> None:
    assert last(on_software("calls.py", "pointers").stdout) == [True, True, "CUDA_ERROR_INVALID_PC"]


def test_virtual_functions(on_software: Any) -> None:
    assert last(on_software("calls.py", "virtual").stdout) is True


def test_recursion_to_a_documented_depth(on_software: Any) -> None:
    assert last(on_software("calls.py", "recursion").stdout) == [True, "CUDA_ERROR_HARDWARE_STACK_ERROR"]


def test_printf_is_shown_when_the_program_waits(on_software: Any) -> None:
    shown = LINES.format(block=0) + LINES.format(block=1)
    assert on_software("calls.py", "print").stdout == f'before the synchronisation\n{shown}"after"\n'


def test_printf_can_be_off(on_software: Any) -> None:
    assert on_software("calls.py", "print", GPUTAX_SOFT_PRINTF="off").stdout == 'before the synchronisation\n"after"\n'


def test_printf_is_bounded(on_software: Any) -> None:
    output = on_software("calls.py", "much").stdout
    assert len(output) < (1 << 20) + 200
    assert f"{32 * 400 * 101 - (1 << 20)} bytes of a kernel's output did not fit" in output


def test_assert_names_the_place_and_ends_the_context(on_software: Any) -> None:
    output = on_software("calls.py", "assert").stdout
    assert "calls.cu:70: fail: block: [0,0,0], thread: [37,0,0] Assertion `values[i] != 0` failed.\n" in output
    assert last(output) == "CUDA_ERROR_ASSERT"


@pytest.mark.parametrize(
    ("piece", "message"),
    [
        (
            ".reg .b64 %a; .param .b64 q; .param .b64 r; call (r), malloc, (q);",
            "'malloc' takes memory inside of a kernel",
        ),
        (
            "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 %a, %b;",
            "'mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32'",
        ),
        ("cp.async.bulk.commit_group;", "'cp.async.bulk.commit_group'"),
        ("wgmma.fence.sync.aligned;", "'wgmma.fence.sync.aligned'"),
        ("add.rz.f16 %h, %h, %h;", "'add.rz.f16'"),
        ("mbarrier.arrive.expect_tx.shared.b64 _, [0], 4;", "'mbarrier.arrive.expect_tx.shared.b64'"),
    ],
)
def test_what_is_not_known_is_named_with_its_line(on_software: Any, piece: str, message: str) -> None:
    program = f"""
from device import *
start()
text = ".version 8.0\\n.target sm_90\\n.address_size 64\\n.extern .func (.param .b64 r) malloc (.param .b64 s);\\n"
print(error_of(driver.cuModuleLoadData((text + ".entry k() {{ .reg .b16 %h; \\n{piece} ret; }}").encode() + b"\\0")))
"""
    done = on_software(program)
    assert done.stdout == "CUDA_ERROR_INVALID_PTX\n"
    assert "PTX line 6: " in done.stderr
    assert message in done.stderr


def test_directed_roundings_also_flush_subnormal_numbers(on_software: Any) -> None:
    """What nvcc makes of expf: fma.rm.ftz.f32."""
    program = """
from device import *
import numpy as np
start()
pieces = []
for place, word in enumerate(("rm", "rp", "rz", "rm.ftz", "rp.ftz", "rz.ftz")):
    pieces.append(f"fma.{word}.f32 %f4, %f1, %f2, %f3; st.global.f32 [%a+{place * 4}], %f4;")
text = ".version 8.0\\n.target sm_90\\n.address_size 64\\n.visible .entry k(.param .u64 to, .param .f32 x, "
text += ".param .f32 y, .param .f32 z)\\n{\\n.reg .f32 %f<5>; .reg .b64 %a;\\n"
text += "ld.param.u64 %a, [to]; ld.param.f32 %f1, [x]; "
text += "ld.param.f32 %f2, [y]; ld.param.f32 %f3, [z];\\n" + "\\n".join(pieces) + "\\nret;\\n}\\n"
kernel = Module(text).kernel("k")
tiny, small = np.float32(2.0**-60), np.float32(1e-40)
for x, y, z, expected in (
    (tiny, tiny, np.float32(1), [1, np.nextafter(np.float32(1), np.float32(2)), 1] * 2),
    (np.float32(1), small, np.float32(0), [small, small, small, 0, 0, 0]),
):
    there = Buffer(np.zeros(6, np.float32))
    launch(kernel, (1,), (1,), there, float(x), float(y), float(z))
    found = there.read()
    assert (found == np.array(expected, np.float32)).all(), (found, expected)
"""
    on_software(program)
