"""Calls through pointers, recursion, printf and assert on the software device: what each case gave, as JSON lines.

python calls.py CASE
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

import numpy as np
from cuda.bindings import driver
from device import Buffer, CudaError, Module, check, error_of, launch, load, start

U, I32 = np.uint32, np.int32


def error_of_launch(m: Module, kernel: str, block: int, *parameters: Any) -> str:
    try:
        launch(m.kernel(kernel), (1,), (block,), *parameters)
    except CudaError as error:
        return str(error)
    return error_of(driver.cuCtxSynchronize())


def pointers(m: Module) -> Any:
    which = Buffer((np.arange(96) * 7 % 3).astype(I32))
    out = Buffer(np.zeros(96, I32))
    launch(m.kernel("through_table"), (1,), (96,), out, which, 5)
    x = np.arange(96) + 5
    expected = np.choose(which.array, [x + 1, 2 * x, x * x]) + 1000
    tabled = (out.read() == expected).all()
    address = Buffer(np.zeros(1, np.uint64))
    launch(m.kernel("address_of"), (1,), (1,), address)
    squares = Buffer(np.zeros(32, I32))
    launch(m.kernel("through_argument"), (1,), (32,), squares, ctypes.c_uint64(int(address.read()[0])))
    passed = (squares.read() == np.arange(32) ** 2).all()
    return [tabled, passed, error_of_launch(m, "through_argument", 32, squares, ctypes.c_uint64(0x1234))]


def virtual(m: Module) -> Any:
    bits = np.random.default_rng(1).integers(0, 2, 64).astype(I32)
    out = Buffer(bits)
    launch(m.kernel("virtual_call"), (1,), (64,), out)
    i = np.arange(64)
    return bool((out.read() == np.where(bits, i * i, i)).all())


def recursion(m: Module) -> Any:
    out = Buffer(np.zeros(64, U))
    launch(m.kernel("recursive"), (1,), (20,), out, 9)
    factorials, fibonaccis = [1, 1], [0, 1]
    for n in range(2, 20):
        factorials.append((n * factorials[-1] + (n & 1)) % 2**32)
        fibonaccis.append(fibonaccis[-1] + fibonaccis[-2])
    found = out.read()
    right = found[:20].tolist() == factorials and found[32:52].tolist() == [fibonaccis[min(n, 9)] for n in range(20)]
    return [right, error_of_launch(m, "recursive", 32, out, 1)]


def printing(m: Module) -> Any:
    text = Buffer(np.frombuffer(b"kernel text\0", np.uint8))
    launch(m.kernel("print"), (2,), (1,), text)
    print("before the synchronisation", flush=True)
    check(driver.cuCtxSynchronize())
    return "after"


def much(m: Module) -> Any:
    launch(m.kernel("print_much"), (1,), (32,), 400)
    check(driver.cuCtxSynchronize())
    return "after"


def assertion(m: Module) -> Any:
    values = np.ones(40, I32)
    values[37] = 0
    return error_of_launch(m, "fail", 40, Buffer(values))


def main() -> None:
    start()
    cases = {"pointers": pointers, "virtual": virtual, "recursion": recursion, "print": printing, "much": much}
    found = (cases | {"assert": assertion})[sys.argv[1]](load("calls"))
    print(json.dumps(found if not isinstance(found, list) else [v if isinstance(v, str) else bool(v) for v in found]))


main()
