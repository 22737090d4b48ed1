"""The kernel that the package carries is the one that NVRTC makes of native/kernels/micro.cu."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gputax.worker.engines.driver_context import KERNEL_FILE

NATIVE = Path(__file__).resolve().parents[4] / "native/kernels"


def body(ptx: str) -> list[str]:
    """Everything behind version and target, which the package keeps older for older drivers; no comments, no blanks."""
    code = re.sub(r"//[^\n]*", "", ptx[ptx.index(".address_size") :])
    return [" ".join(line.split()) for line in code.splitlines() if line.strip()]


def test_it_is_the_kernel_that_the_native_parts_are_tested_with() -> None:
    assert body(KERNEL_FILE.read_text()) == body((NATIVE / "micro.ptx").read_text())


def test_nvrtc_makes_it_afresh() -> None:
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc")
    source = (NATIVE / "micro.cu").read_bytes()
    _, program = nvrtc.nvrtcCreateProgram(source, b"micro.cu", 0, [], [])
    (code,) = nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_75"])
    assert int(code) == 0
    _, size = nvrtc.nvrtcGetPTXSize(program)
    text = b" " * size
    nvrtc.nvrtcGetPTX(program, text)
    nvrtc.nvrtcDestroyProgram(program)
    assert body(text.rstrip(b"\0 ").decode()) == body(KERNEL_FILE.read_text())
