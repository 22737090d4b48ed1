"""Regenerate the cubins here with NVRTC: `python -m tests.native.cubins.make_cubins`; no GPU and no driver needed.

They are checked in, so that testing does not need a compiler for GPUs.
"""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
ARCHITECTURES = {"null_sm90": "sm_90", "null_sm80": "sm_80"}


def cubin(source: str, architecture: str) -> bytes:
    """The image that NVRTC makes of CUDA C source."""
    from cuda.bindings import nvrtc

    def ok(answer: tuple[object, ...]) -> object:
        if answer[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise RuntimeError(str(answer[0]))
        return answer[1] if len(answer) > 1 else None

    program = ok(nvrtc.nvrtcCreateProgram(source.encode(), b"null.cu", 0, [], []))
    ok(nvrtc.nvrtcCompileProgram(program, 1, [f"--gpu-architecture={architecture}".encode()]))
    size = ok(nvrtc.nvrtcGetCUBINSize(program))
    assert isinstance(size, int)
    image = b" " * size
    ok(nvrtc.nvrtcGetCUBIN(program, image))
    return image


if __name__ == "__main__":
    text = (HERE / "null.cu").read_text(encoding="utf-8")
    for name, architecture in ARCHITECTURES.items():
        (HERE / f"{name}.cubin").write_bytes(cubin(text, architecture))
