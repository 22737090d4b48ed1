"""A binary image on a device with null kernels: what is read of it, and that a launch only takes its time."""

from __future__ import annotations

import ctypes
import json
import sys
import time
from pathlib import Path
from typing import Any

import gpu
import numpy as np
from cuda.bindings import driver as cu
from gpu import error, from_device, function, ok, to_device

ATTRIBUTES = {"threads": 0, "shared": 1, "registers": 4}


def parameters(kernel: Any) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    while int((answer := cu.cuFuncGetParamInfo(kernel, len(found)))[0]) == 0:
        found.append((int(answer[1]), int(answer[2])))
    return found


def describe(loaded: Any, name: str) -> dict[str, Any]:
    kernel = function(loaded, name)
    numbers = {
        word: int(ok(cu.cuFuncGetAttribute(cu.CUfunction_attribute(n), kernel))) for word, n in ATTRIBUTES.items()
    }
    return {"parameters": parameters(kernel), **numbers}


def main(path: str, names: list[str]) -> None:
    gpu.begin()
    image = Path(path).read_bytes()
    loaded = ok(cu.cuModuleLoadData(image))
    table = ok(cu.cuModuleGetGlobal(loaded, b"table"))
    values = np.zeros(table[1] // 4, np.uint32)
    before = np.arange(256, dtype=np.float32)
    there = to_device(before)
    kernel = function(loaded, "scale")
    gpu.launch(kernel, (1,), (256,), (there, (3.0, ctypes.c_float)))
    ok(cu.cuCtxSynchronize())
    begun = time.perf_counter()
    for _ in range(10):
        gpu.launch(kernel, (1,), (256,), (there, (3.0, ctypes.c_float)))
    ok(cu.cuCtxSynchronize())
    print(
        json.dumps(
            {
                "device": ok(cu.cuDeviceGetName(256, 0)).split(b"\0")[0].decode(),
                "kernels": {name: describe(loaded, name) for name in names},
                "table": from_device(table[0], values).tolist(),
                "unchanged": bool((from_device(there, before) == before).all()),
                "missing": error(cu.cuModuleGetFunction(loaded, b"nobody")),
                "variable_freed": error(cu.cuMemFree(table[0])),
                "ten_launches_s": time.perf_counter() - begun,
            }
        )
    )
    ok(cu.cuModuleUnload(loaded))


main(sys.argv[1], sys.argv[2:])
