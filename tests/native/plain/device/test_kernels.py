"""Real PTX on the software device: every kernel of the project against numpy, and compiled afresh by NVRTC."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

KERNELS = Path(__file__).parents[4] / "native" / "kernels"
# fmt: off
NAMES = [
    "touch", "vector_add", "vector_add4", "saxpy", "matmul", "matmul_dynamic", "block_sum", "shuffle_sum",
    "transpose", "histogram", "constants", "convert", "integers", "longs", "doubles", "maths",
    "device_function", "local_array", "choose", "votes", "atomics", "structure",
]
# fmt: on

needs_nvrtc = pytest.mark.skipif(
    importlib.util.find_spec("nvidia") is None or not any(Path(sys.prefix).rglob("libnvrtc.so*")),
    reason="nvidia-cuda-nvrtc is not installed",
)


def results(output: str) -> dict[str, dict[str, Any]]:
    return {line["kernel"]: line for line in map(json.loads, output.splitlines())}


@pytest.fixture(scope="session")
def checked_in(on_software: Any) -> dict[str, dict[str, Any]]:
    return results(on_software("kernels.py").stdout)


@pytest.mark.parametrize("name", NAMES)
def test_kernel_is_equal_to_its_reference(checked_in: dict[str, dict[str, Any]], name: str) -> None:
    assert checked_in[name]["right"]


def test_every_kernel_of_the_program_is_tested(checked_in: dict[str, dict[str, Any]]) -> None:
    assert sorted(checked_in) == sorted(NAMES)


@needs_nvrtc
@pytest.mark.parametrize(
    ("architecture", "options", "loose"),
    [
        ("compute_75", [], False),
        ("compute_80", [], False),
        ("compute_90", [], False),
        ("compute_90", ["-lineinfo"], False),
        ("compute_80", ["--use_fast_math"], True),
        ("compute_75", ["-G"], True),
    ],
)
def test_kernels_compiled_afresh(
    on_software: Any, tmp_path: Path, architecture: str, options: list[str], loose: bool
) -> None:
    command = [sys.executable, str(KERNELS / "make_ptx.py"), "--arch", architecture, "--out", str(tmp_path)]
    subprocess.run([*command, *(f"--option={option}" for option in options)], check=True)
    output = on_software("kernels.py", "--ptx", str(tmp_path), *(["--loose"] if loose else [])).stdout
    assert [name for name, line in results(output).items() if not line["right"]] == []


@needs_nvrtc
def test_checked_in_ptx_has_the_kernels_of_the_sources(tmp_path: Path) -> None:
    """Not the same text: NVRTC 13.4 joins the loads of a local array in one of two ways, and not always the same."""

    def kernels(path: Path) -> list[str]:
        return re.findall(r"\.entry (\w+\([^)]*\))", path.read_text())

    subprocess.run([sys.executable, str(KERNELS / "make_ptx.py"), "--out", str(tmp_path)], check=True)
    assert sorted(path.name for path in tmp_path.glob("*.ptx")) == sorted(path.name for path in KERNELS.glob("*.ptx"))
    for fresh in tmp_path.glob("*.ptx"):
        assert kernels(fresh) == kernels(KERNELS / fresh.name), fresh.name


# (name, CUDA C of a kernel `k(int *o)`, threads, what o holds afterwards where it matters)
CORNERS: list[tuple[str, str, int, list[int]]] = [
    (
        "a lock that lanes of one warp fight for",
        "k { while (atomicCAS(&lock, 0, 1) != 0); o[0] += 1; __threadfence(); atomicExch(&lock, 0); }",
        64,
        [64],
    ),
    (
        "warps that wait for another warp",
        "k { if (threadIdx.x >= 64) flag = 1; else { while (flag == 0); atomicAdd(o, 1); } }",
        96,
        [64],
    ),
    ("threads that have left do not hold up a barrier", "k { if (threadIdx.x > 40) return; __syncthreads(); "
     "o[0] = __syncthreads_or(threadIdx.x == 3) + 2 * __syncthreads_and(threadIdx.x < 41); }", 64, [3]),
    (
        "generic pointers to shared and local memory",
        "__device__ __noinline__ int sum(const int *p, int n) "
        "{ int s = 0; for (int i = 0; i < n; i++) s += p[i]; return s; } "
        "k { __shared__ int t[32]; int l[4]; t[threadIdx.x] = threadIdx.x; "
        "for (int i = 0; i < 4; i++) l[(i + o[9]) & 3] = i; __syncthreads(); "
        "o[threadIdx.x & 7] = sum(t, 32) + sum(l, 4); }",
        32,
        [502] * 8,
    ),
    ("a warp's own barrier and clock", "k { long long t = clock64(); __syncwarp(); __nanosleep(10); "
     "o[0] = clock64() >= t; }", 32, [1]),
    (
        "a slow warp holds the others at a barrier",
        "k { __shared__ int t; volatile int *v = o; if (threadIdx.x < 32) { int s = 1; "
        "_Pragma(\"unroll 1\") for (int i = 0; i < 40000; i++) s += v[9]; t = s; } "
        "__syncthreads(); if (threadIdx.x == 63) o[0] = t; }",
        64,
        [1],
    ),
]  # fmt: skip


@needs_nvrtc
@pytest.mark.parametrize(("what", "source", "threads", "expected"), CORNERS, ids=[corner[0] for corner in CORNERS])
def test_corner(on_software: Any, what: str, source: str, threads: int, expected: list[int]) -> None:
    source = source.replace("k {", 'extern "C" __global__ void k(int *o) {')
    program = f"""
import sys; sys.path.insert(0, {str(KERNELS)!r})
import numpy as np
from device import *
from make_ptx import compile_ptx
source = "__device__ int lock; __device__ volatile int flag; " + {source!r}
start()
o = Buffer(np.zeros(16, np.int32))
launch(Module(compile_ptx(source, "corner.cu", ["--gpu-architecture=compute_75"])).kernel("k"), (1,), ({threads},), o)
print(o.read()[:{len(expected)}].tolist())
"""
    assert json.loads(on_software(program, GPUTAX_SOFT_TIMEOUT_S="10").stdout) == expected
