"""Every kernel of the project on whatever libcuda.so.1 there is, against a numpy reference; one JSON line per kernel.

    python kernels.py [--ptx DIR] [--loose] [NAME...]

A line has the kernel's name, whether it was right, and a digest of its results: two libraries can be compared by it.
`--loose` is for PTX compiled with --use_fast_math, whose roundings no reference can know.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import math
import struct
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
from cuda.bindings import driver
from device import KERNELS, Array, Buffer, Module, check, launch, load, start

F, D, I32, U, Q, UQ = np.float32, np.float64, np.int32, np.uint32, np.int64, np.uint64
Results = list[tuple[Array, Array]]  # (found, expected)
loose = False


def coarse(rng: np.random.Generator, *shape: int) -> Array:
    """Floats of 18 bits: products and sums are exact in double, not in float, so an fma is one rounding of them."""
    return (rng.integers(-(2**17), 2**17, shape) / 1024).astype(F)


def fma32(a: Array, b: Array, c: Array) -> Array:
    return (a.astype(D) * b.astype(D) + c.astype(D)).astype(F)


def touch(m: Module, rng: np.random.Generator) -> Results:
    a, b, out = Buffer(coarse(rng, 1024)), Buffer(coarse(rng, 1024)), Buffer(np.zeros(1024, F))
    launch(m.kernel("touch"), (4,), (256,), out, a, b, 1.5)
    launch(m.kernel("nothing"), (1,), (1,))
    return [(out.read(), fma32(a.array, np.full(1024, 1.5, F), b.array))]


def vector_add(m: Module, rng: np.random.Generator) -> Results:
    n = 10_007  # not a multiple of anything
    a, b = Buffer(rng.standard_normal(n).astype(F)), Buffer(rng.standard_normal(n).astype(F))
    out = Buffer(np.zeros(n, F))
    launch(m.kernel("vector_add"), ((n + 255) // 256,), (256,), a, b, out, n)
    return [(out.read(), a.array + b.array)]


def vector_add4(m: Module, rng: np.random.Generator) -> Results:
    a, b = Buffer(rng.standard_normal(4000).astype(F)), Buffer(rng.standard_normal(4000).astype(F))
    out = Buffer(np.zeros(4000, F))
    launch(m.kernel("vector_add4"), (8,), (128,), a, b, out, 1000)
    return [(out.read(), a.array + b.array)]


def saxpy(m: Module, rng: np.random.Generator) -> Results:
    n = 5000
    x, y = Buffer(coarse(rng, n)), Buffer(coarse(rng, n))
    launch(m.kernel("saxpy"), (3,), (96,), 2.25, x, y, ctypes.c_uint64(n))
    return [(y.read(), fma32(np.full(n, 2.25, F), x.array, y.array))]


def matmul(m: Module, rng: np.random.Generator) -> Results:
    n = 50
    a, b, c = Buffer(coarse(rng, n, n)), Buffer(coarse(rng, n, n)), Buffer(np.zeros((n, n), F))
    launch(m.kernel("matmul"), (4, 4), (16, 16), a, b, c, n)
    expected = np.zeros((n, n), F)
    for k in range(n):
        expected = fma32(a.array[:, k : k + 1], b.array[k : k + 1, :], expected)
    return [(c.read(), expected)]


def matmul_dynamic(m: Module, rng: np.random.Generator) -> Results:
    n, tile = 30, 8
    a, b = (Buffer(rng.integers(-100, 100, (n, n)).astype(D)) for _ in range(2))
    c = Buffer(np.zeros((n, n)))
    launch(m.kernel("matmul_dynamic"), (4, 4), (tile, tile), a, b, c, n, shared=2 * tile * tile * 8)
    return [(c.read(), a.array @ b.array)]


def block_sum(m: Module, rng: np.random.Generator) -> Results:
    n, block = 1000, 128
    x, out = Buffer(rng.standard_normal(n).astype(F)), Buffer(np.zeros(8, F))
    launch(m.kernel("block_sum"), (8,), (block,), x, out, n, shared=block * 4)
    part: Array = np.zeros(1024, F)
    part[:n] = x.array
    part = part.reshape(8, block)
    while part.shape[1] > 1:
        half = part.shape[1] // 2
        part = part[:, half:] + part[:, :half]
    return [(out.read(), part[:, 0])]


def shuffle_sum(m: Module, rng: np.random.Generator) -> Results:
    n = 3000
    x, out = Buffer(rng.integers(-(2**31), 2**31, n).astype(I32)), Buffer(np.zeros(12, I32))
    launch(m.kernel("shuffle_sum"), (12,), (256,), x, out, n)
    padded = np.zeros(12 * 256, I32)
    padded[:n] = x.array
    return [(out.read(), padded.reshape(12, 256).sum(axis=1, dtype=I32))]


def transpose(m: Module, rng: np.random.Generator) -> Results:
    x, out = Buffer(rng.standard_normal((75, 130)).astype(F)), Buffer(np.zeros((130, 75), F))
    launch(m.kernel("transpose"), (5, 3), (32, 8), x, out, 130, 75)
    return [(out.read(), x.array.T)]


def histogram(m: Module, rng: np.random.Generator) -> Results:
    x = Buffer(rng.integers(0, 256, 5003).astype(np.uint8))
    globally, shared = Buffer(np.zeros(256, U)), Buffer(np.zeros(256, U))
    launch(m.kernel("histogram_global"), (20,), (256,), x, globally, 5003)
    launch(m.kernel("histogram_shared"), (7,), (96,), x, shared, 5003)
    expected = np.bincount(x.array, minlength=256).astype(U)
    return [(globally.read(), expected), (shared.read(), expected)]


def constants(m: Module, rng: np.random.Generator) -> Results:
    x, out = Buffer(rng.integers(-1000, 1000, 100).astype(I32)), Buffer(np.zeros(100, I32))
    i = np.arange(100)
    weights, table = np.array([1, -2, 3, -4, 5, -6, 7, -8], I32), np.array([1, 3, 5, 7], I32)
    launch(m.kernel("constants"), (2,), (64,), x, out, 100)
    first = out.read()
    pointer, size = check(driver.cuModuleGetGlobal(m.handle, b"weights"))
    check(driver.cuMemcpyHtoD(pointer, (weights * 10).ctypes.data, size))
    launch(m.kernel("constants"), (2,), (64,), x, out, 100)
    counter, size = check(driver.cuModuleGetGlobal(m.handle, b"counter"))
    count = np.zeros(1, U)
    check(driver.cuMemcpyDtoH(count.ctypes.data, counter, size))
    return [
        (first, x.array * weights[i & 7] + table[i & 3]),
        (out.read(), x.array * weights[i & 7] * 10 + table[i & 3]),
        (count, np.array([44], U)),
    ]


def convert(m: Module, rng: np.random.Generator) -> Results:
    n = 300
    x = np.concatenate([rng.uniform(-1000, 1000, n - 6), [0.5, 1.5, 2.5, -0.5, -1.5, 0.0]]).astype(F)
    source = Buffer(x)
    outs = [Buffer(np.zeros(n, t)) for t in (I32, np.uint8, D, Q, np.int16, F)]
    launch(m.kernel("convert"), (3,), (128,), source, *outs, n)
    whole = np.trunc(x).astype(I32)
    mixed = (whole * 3).astype(F) + np.arange(n, dtype=U).astype(F)
    for part in (np.rint(x), np.floor(x), np.ceil(x), np.trunc(x)):
        mixed = mixed + part
    expected = [whole, whole.astype(np.uint8), x.astype(D) / 3.0, np.trunc(x * F(1000)).astype(Q)]
    expected += [whole.astype(np.int16), mixed]
    return [(out.read(), wanted) for out, wanted in zip(outs, expected, strict=True)]


def quotient(x: int, y: int) -> tuple[int, int]:
    """C's division: towards zero."""
    if y == 0:
        return 0, 0
    q = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
    return q, x - q * y


def integers(m: Module, rng: np.random.Generator) -> Results:
    n = 257
    a, b = rng.integers(-(2**31), 2**31, (2, n)).astype(I32)
    a[:6], b[:6] = [0, 1, -1, 7, 2**31 - 1, 100], [0, 0, 5, -3, 3, 7]
    b[100:] >>= 20
    x, y, out = Buffer(a), Buffer(b), Buffer(np.zeros((n, 16), I32))
    launch(m.kernel("integers"), (3,), (96,), x, y, out, n)
    expected = np.zeros((n, 16), Q)
    for i, (s, t) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        u, v = s & 0xFFFFFFFF, t & 0xFFFFFFFF
        data = struct.pack("<II", u, v)
        expected[i] = [
            *quotient(s, t),
            *quotient(u, v),
            (s * t) >> 32,
            (u * v) >> 32,
            s << (t & 31),
            s >> (t & 31),
            u >> (v & 31),
            u.bit_count() + 100 * (32 - u.bit_length()) + 10000 * ((v & -v).bit_length()),
            int(f"{u:032b}"[::-1], 2),
            min(s, t) ^ max(s, t),
            min(u, v) ^ max(u, v),
            abs(s) & ~t,
            int.from_bytes(bytes(data[k] for k in (1, 6, 4, 2)), "little"),
            ((v << 32 | u) << (s & 31)) >> 32,
        ]
    return [(out.read(), expected.astype(U).astype(I32))]


def longs(m: Module, rng: np.random.Generator) -> Results:
    n = 200
    a, b = rng.integers(-(2**63), 2**63 - 1, (2, n), dtype=Q)
    b[50:] >>= 40
    b[:3] = [0, 1, -1]
    x, y, out = Buffer(a), Buffer(b), Buffer(np.zeros((n, 8), Q))
    launch(m.kernel("longs"), (2,), (128,), x, y, out, n)
    mask, rows = 2**64 - 1, []
    for s, t in zip(a.tolist(), b.tolist(), strict=True):
        u, v = s & mask, t & mask
        rows.append(
            [
                s * t,
                quotient(s, t)[0],
                quotient(u, v)[1],
                (s * t) >> 64,
                (u >> (t & 63)) ^ (s << (t & 63)),
                u.bit_count() + 100 * (64 - u.bit_length()) + 10000 * ((v & -v).bit_length()),
                min(s, t),
                max(u, v) - (u & v),
            ]
        )
    return [(out.read(), np.array([[value & mask for value in row] for row in rows], UQ).astype(Q))]


def doubles(m: Module, rng: np.random.Generator) -> Results:
    n = 150
    a, b = rng.standard_normal((2, n)) * 100
    x, y, out = Buffer(a), Buffer(b), Buffer(np.zeros((n, 6)))
    launch(m.kernel("doubles"), (2,), (96,), x, y, out, n)
    fused = [float(Fraction(s) * Fraction(t) + 1) for s, t in zip(a.tolist(), b.tolist(), strict=True)]
    columns = [a / b, np.sqrt(np.abs(a)), a * b + 1.0, np.array(fused), np.minimum(a, b) - np.maximum(a, b)]
    columns.append(a.astype(F).astype(D) + np.trunc(b))
    return [(out.read(), np.stack(columns, axis=1))]


def maths(m: Module, rng: np.random.Generator) -> Results:
    n = 500
    source = rng.uniform(0.1, 20, n).astype(F)
    x, out = Buffer(source), Buffer(np.zeros((n, 8), F))
    launch(m.kernel("maths"), (4,), (128,), x, out, n)
    v = source.astype(D)
    columns = [np.sqrt(v), np.exp(v), np.log(v), np.sin(v), v**1.5, 1 / np.sqrt(v), 1 / v, np.tanh(v)]
    found, expected = out.read(), np.stack(columns, axis=1)
    near = np.isclose(found, expected, rtol=1e-4 if loose else 3e-7, atol=1e-5 if loose else 3e-7)
    return [(found, np.where(near, found, expected.astype(F)))]  # near enough counts as equal


def collatz(value: int) -> int:
    steps = 0
    while value > 1:
        value = 3 * value + 1 if value & 1 else value // 2
        steps += 1
    return steps


def device_function(m: Module, rng: np.random.Generator) -> Results:
    x, out = Buffer(rng.integers(1, 500, 70).astype(I32)), Buffer(np.zeros(70, I32))
    launch(m.kernel("device_function"), (2,), (64,), x, out, 70)
    return [(out.read(), np.array([collatz(int(v)) + 1000 * collatz(i + 1) for i, v in enumerate(x.array)], I32))]


def local_array(m: Module, rng: np.random.Generator) -> Results:
    x, out = Buffer(rng.integers(0, 2**31, 90).astype(I32)), Buffer(np.zeros(90, I32))
    launch(m.kernel("local_array"), (2,), (64,), x, out, 90)
    expected = []
    for value in x.array.tolist():
        counts = list(range(16))
        for j in range(8):
            counts[(value >> (4 * j)) & 15] += j * j
        total = 0
        for count in counts:
            total = total * 7 + count
        expected.append(total & 0xFFFFFFFF)
    return [(out.read(), np.array(expected, U).astype(I32))]


def choose(m: Module, rng: np.random.Generator) -> Results:
    x, out = Buffer(rng.integers(-500, 500, 333).astype(I32)), Buffer(np.zeros(333, I32))
    launch(m.kernel("choose"), (3,), (128,), x, out, 333)
    expected = []
    for i, v in enumerate(x.array.tolist()):
        cases = {0: v + 1, 1: v * 2, 2: v - 7, 3: v ^ 0x55, 4: -v, 5: v >> 2, 6: quotient(v, 5)[0]}
        cases[9] = quotient(v, 11)[1]
        expected.append(cases.get(v & 15, -1 if v < 0 else i))
    return [(out.read(), np.array(expected, I32))]


def votes(m: Module, rng: np.random.Generator) -> Results:
    x, out = Buffer(rng.integers(0, 40, 128).astype(I32)), Buffer(np.zeros((128, 8), U))
    launch(m.kernel("votes"), (2,), (64,), x, out, 128)
    expected = []
    for i in range(128):
        warp, lane = x.array[i // 32 * 32 : i // 32 * 32 + 32].tolist(), i % 32
        block = x.array[i // 64 * 64 : i // 64 * 64 + 64]
        odd = [k for k, v in enumerate(warp) if v & 1]
        row = [sum(1 << k for k in odd), 3 in warp, all(v >= 0 for v in warp), warp[lane ^ 5]]
        row += [warp[lane - 3] if lane >= 3 else warp[lane], warp[(lane & 16) | 7], int((block & 1).sum())]
        expected.append([*row, len(odd) + warp[odd[0]] if warp[lane] & 1 else 0])
    return [(out.read(), np.array(expected, U))]


def atomics(m: Module, rng: np.random.Generator) -> Results:
    n = 1000
    x = rng.integers(-(2**30), 2**30, n).astype(I32)
    source, ints = Buffer(x), Buffer(np.array([2**31 - 1, -(2**31), -1, 0, 0, 0, 0, 5, 0], I32))
    wide, floats = Buffer(np.zeros(2, UQ)), Buffer(np.zeros(1, F))
    launch(m.kernel("atomics"), (8,), (128,), source, ints, wide, floats, n)
    reduced = [x.min(), x.max(), np.bitwise_and.reduce(x), np.bitwise_or.reduce(x), np.bitwise_xor.reduce(x)]
    expected = [*reduced, -x.sum(dtype=I32), n % 10, 5 + (x & 3).sum(), 77]
    sums = np.array([int(x.sum(dtype=Q)) % 2**64, int(x.astype(U).max())], UQ)
    return [(ints.read(), np.array(expected, I32)), (wide.read(), sums), (floats.read(), np.array([n], F))]


class Pair(ctypes.Structure):
    _fields_ = (("tag", ctypes.c_byte), ("value", ctypes.c_double), ("counts", ctypes.c_short * 3))


def structure(m: Module, rng: np.random.Generator) -> Results:
    out = Buffer(np.zeros(4))
    by_value = Pair(-3, 2.5, (ctypes.c_short * 3)(7, -8, 9))
    pointer, which = ctypes.c_uint64(out.pointer), ctypes.c_int(1)
    parameters = (ctypes.c_void_p * 3)(*(ctypes.addressof(p) for p in (by_value, pointer, which)))
    check(driver.cuLaunchKernel(m.kernel("structure"), 1, 1, 1, 4, 1, 1, 0, 0, ctypes.addressof(parameters), 0))
    return [(out.read(), np.full(4, 2.5 - 3 - 8))]


Case = Callable[[Module, np.random.Generator], Results]
CASES: dict[str, tuple[str, Case]] = {
    "touch": ("micro", touch),
    "vector_add": ("vector", vector_add),
    "vector_add4": ("vector", vector_add4),
    "saxpy": ("vector", saxpy),
    "matmul": ("matmul", matmul),
    "matmul_dynamic": ("matmul", matmul_dynamic),
    "block_sum": ("reduce", block_sum),
    "shuffle_sum": ("reduce", shuffle_sum),
    "transpose": ("transpose", transpose),
    "histogram": ("histogram", histogram),
    **{
        case.__name__: ("language", case)
        for case in (constants, convert, integers, longs, doubles, maths, device_function, local_array, choose, votes)
    },
    "atomics": ("language", atomics),
    "structure": ("language", structure),
}


def same(found: Array, expected: Array) -> bool:
    if loose and found.dtype.kind == "f":
        return bool(np.allclose(found, expected, rtol=1e-5, atol=0.01))
    return found.shape == expected.shape and np.array_equal(found, expected.astype(found.dtype), equal_nan=True)


def main(arguments: list[str]) -> int:
    global loose
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ptx", type=Path, default=KERNELS)
    parser.add_argument("--loose", action="store_true")
    parser.add_argument("names", nargs="*", default=None)
    chosen = parser.parse_args(arguments)
    loose = chosen.loose
    start()
    failed = 0
    for name in chosen.names or CASES:
        file, case = CASES[name]
        # A module of its own for each: variables begin with their first values.
        results = case(load(file, chosen.ptx), np.random.default_rng(math.prod(map(ord, name)) % 2**32))
        right = all(same(found, expected) for found, expected in results)
        digest = hashlib.sha256(b"".join(found.tobytes() for found, _ in results)).hexdigest()
        wrong = sum(int(np.sum(found != expected)) for found, expected in results)
        print(json.dumps({"kernel": name, "right": right, "wrong_values": 0 if right else wrong, "digest": digest}))
        failed += not right
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
