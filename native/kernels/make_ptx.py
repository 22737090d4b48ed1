"""Regenerate the PTX of every kernel here with NVRTC: `python make_ptx.py [--arch compute_75] [--out DIR]`.

Needs `cuda-bindings` and `nvidia-cuda-nvrtc`; no GPU and no driver. The PTX is checked in, so that building and testing
need neither.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
ARCHITECTURE = "compute_75"


def compile_ptx(source: str, name: str, options: Sequence[str]) -> str:
    """PTX text of CUDA C source; `RuntimeError` with the compiler's log if it does not compile."""
    from cuda.bindings import nvrtc

    error, program = nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], [])
    if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RuntimeError(f"NVRTC: {error.name}")
    (error,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
    if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = b" " * size
        nvrtc.nvrtcGetProgramLog(program, log)
        raise RuntimeError(f"NVRTC: {name}: {log.decode()}")
    _, size = nvrtc.nvrtcGetPTXSize(program)
    text = b" " * size
    nvrtc.nvrtcGetPTX(program, text)
    nvrtc.nvrtcDestroyProgram(program)
    ptx: str = text.rstrip(b"\0 ").decode()
    return ptx


def main(arguments: Sequence[str]) -> None:
    """Compile every *.cu beside this file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", default=ARCHITECTURE)
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--option", action="append", default=[], help="one more option for NVRTC")
    chosen = parser.parse_args(arguments)
    for source in sorted(HERE.glob("*.cu")):
        ptx = compile_ptx(source.read_text(), source.name, [f"--gpu-architecture={chosen.arch}", *chosen.option])
        (chosen.out / source.with_suffix(".ptx").name).write_text(ptx.rstrip() + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
