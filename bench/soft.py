"""How fast the software device computes: the tiled product, interpreted and compiled in alternation."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from gputax.environments.driver import SOFTWARE_DEVICE, native_part

SIDE, REPEATS = 512, 5
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


def _gflops(compile_policy: str, launches: int) -> float:
    library = str(native_part(SOFTWARE_DEVICE).resolve())
    command = [sys.executable, "-c", PROGRAM, library, str(KERNELS / "matmul.ptx"), str(SIDE), str(launches)]
    environment = {**os.environ, "GPUTAX_SOFT_COMPILE": compile_policy}
    return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def soft_gflops() -> dict[str, Any]:
    """Return GFLOP/s per core (CPU time) of the software device: medians of interleaved processes."""
    compiled, interpreted = [], []
    for _ in range(REPEATS):
        compiled.append(_gflops("always", 20))
        interpreted.append(_gflops("never", 1))
    return {
        "soft_gflops": statistics.median(compiled),
        "soft_gflops_interpreted": statistics.median(interpreted),
    }
