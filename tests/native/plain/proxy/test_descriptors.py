"""cuTensorMapEncodeTiled behind the proxy: arguments reach the backend, its 128 bytes and refusals come back."""

from __future__ import annotations

import json
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parents[2] / "backends/descriptor.c"
PROGRAM = """
import ctypes, json, sys
driver = ctypes.CDLL("libcuda.so.1")
assert driver.cuInit(0) == 0
context = ctypes.c_void_p()
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
for case in json.loads(sys.argv[1]):
    rank, map_bytes = case["rank"], (ctypes.c_uint8 * 128)(*[0xEE] * 128)
    longs = lambda values: (ctypes.c_uint64 * len(values))(*values)
    words = lambda values: (ctypes.c_uint32 * len(values))(*values)
    code = driver.cuTensorMapEncodeTiled(
        map_bytes, case["type"], ctypes.c_uint32(rank), ctypes.c_void_p(case["address"]), longs(case["dimensions"]),
        longs(case["strides"]) if case["strides"] is not None else None, words(case["box"]), words(case["steps"]),
        *case["modes"])
    print(json.dumps([code, bytes(map_bytes).hex()]))
"""
FULL = {
    "type": 7, "rank": 5, "address": 0x7F0012345600, "dimensions": [64, 1 << 33, 3, 4, 5],
    "strides": [256, 1 << 36, 1 << 37, 1 << 38], "box": [64, 8, 1, 2, 1], "steps": [1, 2, 1, 1, 3],
    "modes": [1, 2, 3, 1],
}  # fmt: skip
LINE = {
    "type": 3,
    "rank": 1,
    "address": 4096,
    "dimensions": [1000],
    "strides": None,
    "box": [128],
    "steps": [1],
    "modes": [0] * 4,
}
REFUSED = {**FULL, "rank": 4}
TOO_MANY, NONE = {**LINE, "rank": 6, "dimensions": [1] * 6, "strides": [1] * 5}, {**LINE, "rank": 0}
UNTOUCHED = "ee" * 128
INVALID_VALUE, NOT_SUPPORTED = 1, 801


def packed(case: dict[str, Any]) -> str:
    rank = case["rank"]
    interleave, swizzle, promotion, fill = case["modes"]
    head = struct.pack("<Q6B2x", case["address"], case["type"], rank, interleave, swizzle, promotion, fill)
    padded = [
        list(case[name] or [])[:most] for name, most in (("dimensions", 5), ("strides", 4), ("box", 5), ("steps", 5))
    ]
    dimensions, strides, box, steps = ([*values, *[0] * (5 - len(values))] for values in padded)
    return (head + struct.pack("<9Q10I", *dimensions, *strides[:4], *box, *steps)).hex()


@pytest.fixture
def backend(tmp_path: Path, native_build: Path) -> Path:
    """The software device with a call of its own in front; dlsym finds all others in what it is linked with."""
    (tmp_path / "device.so").write_bytes((native_build / "software/libcuda.so.1").read_bytes())
    (tmp_path / "empty.c").write_text("")
    stub = ["-shared", f"-Wl,-soname,{tmp_path}/device.so", "-o", "stub.so", "empty.c"]
    front = [
        "-shared",
        "-fPIC",
        "-O1",
        "-Wall",
        "-Werror",
        "-o",
        "front.so",
        str(SOURCE),
        "-Wl,--no-as-needed",
        "stub.so",
    ]
    for words in (stub, front):
        subprocess.run(["gcc", *words], cwd=tmp_path, check=True)
    return tmp_path / "front.so"


@pytest.mark.parametrize("transport", ["shm", "unix-socket"])
def test_a_descriptor_is_what_the_backend_made_of_the_arguments(nursery: Any, backend: Path, transport: str) -> None:
    proxy = nursery.proxy(backend=backend)
    cases = [FULL, LINE, REFUSED, TOO_MANY, NONE]
    output = nursery.run(PROGRAM, proxy.environment(transport), json.dumps(cases))
    found = [tuple(json.loads(line)) for line in output.splitlines()]
    assert found == [
        (0, packed(FULL)),
        (0, packed(LINE)),
        (NOT_SUPPORTED, UNTOUCHED),
        (INVALID_VALUE, UNTOUCHED),
        (INVALID_VALUE, UNTOUCHED),
    ]
    status: dict[str, list[dict[str, Any]]] = proxy.status()
    (tenant,) = [*status["tenants"], *status["ended_tenants"]]
    assert tenant["calls"]["cuTensorMapEncodeTiled"] == 3, "what is wrong already in the program does not travel"


def test_the_software_device_says_that_it_has_none_on_both_sides(nursery: Any) -> None:
    for environment in (nursery.direct(), nursery.proxy().environment()):
        assert json.loads(nursery.run(PROGRAM, environment, json.dumps([LINE]))) == [NOT_SUPPORTED, UNTOUCHED]
