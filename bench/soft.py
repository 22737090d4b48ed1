"""How fast the software device computes: the tiled product, compiled and interpreted, beside OpenBLAS on the same core.

"A core" is one core with the other ones at rest: on a virtual machine whose cores share a physical one, CPU seconds of
two busy threads are longer (7.6 instead of 10.5 GFLOP/s, measured), which says nothing of the generated code.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.intervals import median_interval
from gputax.environments.driver import SOFTWARE_DEVICE, native_part

SIDE, LAUNCHES, REPEATS = 512, 40, 9
KERNELS = Path(__file__).parents[1] / "native" / "kernels"

# A process of its own for each figure: the device reads its settings once. Prints GFLOP per second of CPU time.
PROGRAM = """
import ctypes, sys, time
library, ptx = ctypes.CDLL(sys.argv[1]), open(sys.argv[2], "rb").read()
side, launches = int(sys.argv[3]), int(sys.argv[4])
def call(name, *arguments):
    result = getattr(library, name)(*arguments)
    assert result == 0, (name, result)
context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuModuleLoadData", ctypes.byref(module), ptx)
call("cuModuleGetFunction", ctypes.byref(kernel), module, b"matmul")
values = [ctypes.c_uint64() for _ in range(3)] + [ctypes.c_int32(side)]
for value in values[:3]:
    call("cuMemAlloc_v2", ctypes.byref(value), ctypes.c_size_t(4 * side * side))
parameters = (ctypes.c_void_p * 4)(*(ctypes.addressof(value) for value in values))
def run():
    call("cuLaunchKernel", kernel, side // 16, side // 16, 1, 16, 16, 1, 0, None, parameters, None)
run()
call("cuCtxSynchronize")
began = time.process_time()
for _ in range(launches):
    run()
call("cuCtxSynchronize")
print(2e-9 * side**3 * launches / (time.process_time() - began))
"""


# The same product by the library that the field trusts, on one thread.
REFERENCE = """
import sys, time
import numpy
side, launches = int(sys.argv[1]), int(sys.argv[2])
matrix = numpy.ones((side, side), dtype=numpy.float32)
matrix @ matrix
began = time.process_time()
for _ in range(launches):
    matrix @ matrix
print(2e-9 * side**3 * launches / (time.process_time() - began))
"""


def _gflops(compile_policy: str, launches: int, cores: set[int]) -> float:
    library = str(native_part(SOFTWARE_DEVICE).resolve())
    words = [sys.executable, "-c", PROGRAM, library, str(KERNELS / "matmul.ptx"), str(SIDE), str(launches)]
    return _printed(words, {"GPUTAX_SOFT_COMPILE": compile_policy}, cores)


def _reference_gflops(launches: int, cores: set[int]) -> float:
    words = [sys.executable, "-c", REFERENCE, str(SIDE), str(launches)]
    return _printed(words, {"OPENBLAS_NUM_THREADS": "1"}, cores)


def _printed(words: list[str], variables: Mapping[str, str], cores: set[int]) -> float:
    """Run a program on these cores alone; the caller's cores are restored, and a child keeps those it began with."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        done = subprocess.run(words, env={**os.environ, **variables}, capture_output=True, text=True, check=True)
    finally:
        os.sched_setaffinity(0, own)
    return float(done.stdout)


def soft_gflops() -> dict[str, Any]:
    """Return GFLOP per CPU second of the software device, on one core and on all, and OpenBLAS's: medians."""
    every = os.sched_getaffinity(0)
    one = {min(every)}
    rows: dict[str, list[float]] = {"": [], "_all_cores": [], "_interpreted": [], "_openblas": []}
    for _ in range(REPEATS):
        rows[""].append(_gflops("always", LAUNCHES, one))
        rows["_all_cores"].append(_gflops("always", LAUNCHES, every))
        rows["_interpreted"].append(_gflops("never", 1, one))
        rows["_openblas"].append(_reference_gflops(LAUNCHES, one))
    return {
        **{f"soft_gflops{name}": statistics.median(values) for name, values in rows.items()},
        "soft_gflops_ci95": median_interval(rows[""]),
    }
