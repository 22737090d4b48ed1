"""CuPy's own answers on the computing software device, direct and behind the proxy, against numpy's."""

from __future__ import annotations

import json

import pytest

from tests.frameworks.conftest import WAYS, Command

PROGRAM = """
import json
import cupy as cp
import numpy as np

random = np.random.default_rng(7)
a, b = random.random((64, 48), dtype=np.float32), random.random((64, 48), dtype=np.float32)
there, other = cp.asarray(a), cp.asarray(b)
scaled = cp.RawKernel(r'''
extern "C" __global__ void scaled(const float *x, float *y, float by, int n) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) y[i] = x[i] * by;
}''', "scaled")
out = cp.zeros_like(there)
scaled(((a.size + 127) // 128,), (128,), (there, out, np.float32(3), np.int32(a.size)))
stream = cp.cuda.Stream(non_blocking=True)
with stream:
    streamed = there * 2 + other
stream.synchronize()
pairs = {
    "sum": (there.sum(axis=0), a.sum(axis=0)),
    "elementwise": (there * other - there / (other + 1), a * b - a / (b + 1)),
    "exp": (cp.exp(there), np.exp(a)),
    "where": (cp.where(there > other, there, -other), np.where(a > b, a, -b)),
    "std": (there.std(), a.std()),
    "argmax": (there.argmax(axis=1), a.argmax(axis=1)),
    "raw kernel": (out, a * np.float32(3)),
    "stream": (streamed, a * 2 + b),
}
print(json.dumps({name: float(np.max(np.abs(cp.asnumpy(got).astype(np.float64) - wanted)))
                  for name, (got, wanted) in pairs.items()}))
"""
# CuPy's kernels as PTX, and without CUB, which brings machine code alone.
SETTINGS = {"CUPY_COMPILE_WITH_PTX": "1", "CUPY_ACCELERATORS": ""}
# Sums of 64 numbers below one, and functions of the C library: a few steps of fp32.
TOLERANCE = 1e-4


@pytest.mark.parametrize("environment", WAYS)
def test_cupy_computes_what_numpy_computes(in_environment: Command, environment: str, tmp_path: object) -> None:
    settings = {**SETTINGS, "CUPY_CACHE_DIR": f"{tmp_path}/cupy"}
    done = in_environment(environment, PROGRAM, **settings)
    differences = json.loads(done.stdout)
    assert len(differences) == 8
    assert {name: value for name, value in differences.items() if value > TOLERANCE} == {}
    assert max(differences[name] for name in ("argmax", "raw kernel")) == 0.0
