"""mma, wmma, ldmatrix and their like against numpy, with the fragments laid out as the PTX ISA's tables say.

One JSON line per instruction: its name, and how many elements of the result differ from the reference.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from device import Array, Buffer, Module, launch, start
from one import HEAD

U2, U4, F, D = np.uint16, np.uint32, np.float32, np.float64
KINDS: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": F, "s8": np.int8, "u8": np.uint8, "f64": D,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "f32": F, "s32": np.int32,
}  # fmt: skip
Place = Callable[[int, int], tuple[int, int]]  # of (lane, index): (row, column)
rng = np.random.default_rng(3)


def wrong(name: str, found: Array, expected: Array) -> None:
    same = (found == expected) | ((found != found) & (expected != expected))
    print(json.dumps({"instruction": name, "elements": int(found.size), "wrong": int((~same).sum())}), flush=True)


# The tables of the ISA's sections on mma: (rows and columns of a, of b, of c) by shape and size of an element.
def c_place(lane: int, i: int) -> tuple[int, int]:
    return lane // 4 + (8 if i >= 2 else 0), lane % 4 * 2 + (i & 1)


PLACES: dict[tuple[str, int], tuple[Place, Place]] = {
    ("m16n8k16", 16): (
        lambda t, i: (t // 4 + (0 if i < 2 or 4 <= i < 6 else 8), t % 4 * 2 + (i & 1) + (8 if i >= 4 else 0)),
        lambda t, i: (t % 4 * 2 + (i & 1) + (8 if i >= 2 else 0), t // 4),
    ),
    ("m16n8k8", 16): (
        lambda t, i: (t // 4 + (0 if i < 2 else 8), t % 4 * 2 + (i & 1)),
        lambda t, i: (t % 4 * 2 + i, t // 4),
    ),
    ("m16n8k8", 32): (
        lambda t, i: (t // 4 + (0 if i in (0, 2) else 8), t % 4 + (0 if i in (0, 1) else 4)),
        lambda t, i: (t % 4 + (0 if i == 0 else 4), t // 4),
    ),
    ("m16n8k4", 32): (
        lambda t, i: (t // 4 + (0 if i == 0 else 8), t % 4),
        lambda t, i: (t % 4, t // 4),
    ),
    ("m16n8k16", 8): (
        lambda t, i: (t // 4 + (0 if i < 4 else 8), t % 4 * 4 + (i & 3)),
        lambda t, i: (t % 4 * 4 + (i & 3), t // 4),
    ),
    ("m16n8k32", 8): (
        lambda t, i: (t // 4 + (0 if i < 4 or 8 <= i < 12 else 8), t % 4 * 4 + (i & 3) + (16 if i >= 8 else 0)),
        lambda t, i: (t % 4 * 4 + (i & 3) + (16 if i >= 4 else 0), t // 4),
    ),
    ("m8n8k16", 8): (
        lambda t, i: (t // 4, t % 4 * 4 + (i & 3)),
        lambda t, i: (t % 4 * 4 + (i & 3), t // 4),
    ),
    ("m8n8k4", 64): (lambda t, i: (t // 4, t % 4), lambda t, i: (t % 4, t // 4)),
}


def sizes(shape: str) -> tuple[int, int, int]:
    m, n, k = (int(part) for part in shape[1:].replace("n", " ").replace("k", " ").split())
    return m, n, k


def fragments(matrix: Array, place: Place) -> Array:
    """What each of the 32 lanes holds, as registers."""
    each = matrix.size // 32
    rows = [[matrix[place(lane, i)] for i in range(each)] for lane in range(32)]
    return np.array(rows, matrix.dtype).view(np.uint64 if matrix.dtype == D else U4)


def numbers(kind: str, shape: tuple[int, int]) -> Array:
    """Numbers of a type: integers over its whole range, floats of many sizes, zeros of both signs."""
    if kind in ("s8", "u8", "s32"):
        limits = np.iinfo(KINDS[kind])
        return rng.integers(limits.min, limits.max + 1, shape).astype(KINDS[kind])
    values = rng.standard_normal(shape) * 2.0 ** rng.integers(-6, 6, shape)
    values[rng.integers(0, shape[0]), rng.integers(0, shape[1])] = -0.0
    made = values.astype(KINDS[kind])
    if kind == "tf32":
        made = (made.view(U4) & U4(0xFFFFE000)).view(F)
    return made


def eighths(shape: tuple[int, ...]) -> Array:
    """Doubles whose products and sums are exact."""
    made: Array = rng.integers(-99, 99, shape) / 8
    return made


def product(a: Array, b: Array, c: Array, to: str, saturate: bool = False) -> Array:
    """The device's rule: products exact, sums in f32 (f64) for k in order, from c on; f16 is rounded at the end."""
    if to == "s32":
        total: Array = c.astype(np.int64) + a.astype(np.int64) @ b.astype(np.int64)
        total = np.clip(total, -(2**31), 2**31 - 1) if saturate else total
        return total.astype(np.int32)
    wide = D if to == "f64" else F
    total = c.astype(wide)
    for k in range(a.shape[1]):
        step = a[:, k : k + 1].astype(D) * b[k : k + 1, :].astype(D)
        if to == "f64":
            total = total + step  # exact: these are eighths
        else:
            assert (step.astype(F) == step)[np.isfinite(step)].all(), "a product that f32 does not hold"
            total = total + step.astype(F)
    return total.astype(KINDS[to])


def kernel(instruction: str, counts: Sequence[int], bits: int) -> str:
    """Registers from and to memory, one row for each lane: d first, then a, b, c."""
    letters = "dabc"
    size = bits // 8
    loads, lists = "", []
    for letter, count in zip(letters, counts, strict=True):
        lists.append("{" + ", ".join(f"%{letter}{i}" for i in range(count)) + "}")
        for i in range(count if letter != "d" else 0):
            loads += (
                f"mad.wide.u32 %at, %i, {count * size}, %{letter};\nld.global.b{bits} %{letter}{i}, [%at+{size * i}];\n"
            )
    stores = "".join(f"st.global.b{bits} [%at+{size * i}], %d{i};\n" for i in range(counts[0]))
    registers = "".join(f".reg .b{bits} %{letter}<{count}>;\n" for letter, count in zip(letters, counts, strict=True))
    return f"""{HEAD}.visible .entry k(.param .u64 d, .param .u64 a, .param .u64 b, .param .u64 c) {{
{registers}.reg .b64 %at, %d, %a, %b, %c; .reg .b32 %i;
ld.param.u64 %d, [d]; ld.param.u64 %a, [a]; ld.param.u64 %b, [b]; ld.param.u64 %c, [c]; mov.u32 %i, %tid.x;
{loads}{instruction} {", ".join(lists)};
mad.wide.u32 %at, %i, {counts[0] * size}, %d;
{stores}ret; }}"""


def multiply(shape: str, d: str, a: str, b: str, c: str, more: str = "") -> None:
    bits = np.dtype(KINDS[a]).itemsize * 8
    m, n, k = sizes(shape)
    place_a, place_b = PLACES[shape, bits]
    x, y, z = numbers(a, (m, k)), numbers(b, (k, n)), numbers(c, (m, n))
    if a == "f64":
        x, y, z = (eighths(v.shape) for v in (x, y, z))
    if more:  # sums that do not fit
        z = np.where(z < 0, -(2**31) + 5, 2**31 - 5).astype(np.int32)
    name = f"mma.sync.aligned.{shape}.row.col{more}.{d}.{a}.{b}.{c}"
    parts = [fragments(x, place_a), fragments(y, place_b), fragments(z, c_place)]
    expected = product(x, y, z, d, bool(more))
    wanted = fragments(expected, c_place)
    out = Buffer(np.zeros_like(wanted))
    text = kernel(name, [wanted.shape[1], *(part.shape[1] for part in parts)], 64 if a == "f64" else 32)
    launch(Module(text).kernel("k"), (1,), (32,), out, *map(Buffer, parts))
    wrong(name, out.read().view(expected.dtype), wanted.view(expected.dtype))


def special_values() -> None:
    """Infinite, not a number, subnormal: they go through as IEEE says."""
    values = [np.inf, -np.inf, np.nan, 6e-8, -6e-8, 65504, -65504, 0.0, -0.0, 1.0]
    a, b = (np.resize(np.array(values, np.float16), (16, 16)) for _ in range(2))
    b = b.T[:, :8].copy()
    a[:8] = np.diag(np.resize(np.array(values, np.float16), 16))[:8]
    c = np.resize(np.array([0, 1e-40, -1e-45, np.inf, 3e38], F), (16, 8))
    place_a, place_b = PLACES["m16n8k16", 16]
    expected = product(a, b, c, "f32")
    wanted = fragments(expected, c_place)
    out = Buffer(np.zeros_like(wanted))
    parts = [fragments(a, place_a), fragments(b, place_b), fragments(c, c_place)]
    text = kernel("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", [4, 4, 2, 4], 32)
    launch(Module(text).kernel("k"), (1,), (32,), out, *map(Buffer, parts))
    wrong("mma of special values", out.read().view(F), wanted.view(F))


# (shape, type, sum, registers of a, b, c)
WMMA = [
    ("m16n16k16", "f16", "f32", 8, 8, 8), ("m16n16k16", "f16", "f16", 8, 8, 4), ("m8n32k16", "f16", "f32", 8, 8, 8),
    ("m32n8k16", "f16", "f16", 8, 8, 4), ("m16n16k16", "bf16", "f32", 4, 4, 8), ("m8n32k16", "bf16", "f32", 2, 8, 8),
    ("m32n8k16", "bf16", "f32", 8, 2, 8), ("m16n16k8", "tf32", "f32", 4, 4, 8), ("m16n16k16", "s8", "s32", 2, 2, 8),
    ("m8n32k16", "u8", "s32", 1, 4, 8), ("m32n8k16", "s8", "s32", 4, 1, 8), ("m8n8k4", "f64", "f64", 1, 1, 2),
]  # fmt: skip


def fragment_kernel(
    shape: str, kind: str, total: str, counts: Sequence[int], layouts: str, strides: Sequence[int]
) -> str:
    n = sizes(shape)[1]
    bits = 64 if kind == "f64" else 32
    lists = [
        "{" + ", ".join(f"%{letter}{i}" for i in range(count)) + "}"
        for letter, count in zip("abc", counts, strict=True)
    ]
    names = {"r": "row", "c": "col"}
    la, lb, lc = (names[letter] for letter in layouts)
    types = f"{total}.{total}" if kind == "f16" else f"{total}.{kind}.{kind}.{total}"
    registers = "".join(f".reg .b{bits} %{letter}<{count}>;\n" for letter, count in zip("abc", counts, strict=True))
    return f"""{HEAD}.shared .align 32 .b8 tile[8192];
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c) {{
{registers}.reg .b64 %pa, %pb, %pc; .reg .b32 %s;
ld.param.u64 %pa, [a]; ld.param.u64 %pb, [b]; ld.param.u64 %pc, [c]; mov.u32 %s, {strides[0]};
wmma.load.a.sync.aligned.{la}.{shape}.global.{kind} {lists[0]}, [%pa], %s;
wmma.load.b.sync.aligned.{lb}.{shape}.{kind} {lists[1]}, [%pb], {strides[1]};
wmma.load.c.sync.aligned.{lc}.{shape}.global.{total} {lists[2]}, [%pc], {strides[2]};
wmma.mma.sync.aligned.{la}.{lb}.{shape}{".rn" * (kind == "f64")}.{types} {lists[2]}, {lists[0]}, {lists[1]}, {lists[2]};
wmma.store.d.sync.aligned.row.{shape}.shared.{total} [tile+32], {lists[2]};
wmma.load.c.sync.aligned.row.{shape}.shared.{total} {lists[2]}, [tile+32], {n};
wmma.store.d.sync.aligned.{lc}.{shape}.global.{total} [%pc], {lists[2]}, {strides[2]};
ret; }}"""


def padded(matrix: Array, layout: str, stride: int) -> Array:
    lines = matrix if layout == "r" else matrix.T
    out = np.zeros((lines.shape[0], stride), matrix.dtype)
    out[:, : lines.shape[1]] = lines
    return out


def fragments_of_wmma() -> None:
    for shape, kind, total, *counts in WMMA:
        m, n, k = sizes(shape)
        for layouts in ("rcr", "crc"):
            a, b, c = numbers(kind, (m, k)), numbers(kind, (k, n)), numbers(total, (m, n))
            if kind == "f64":
                a, b, c = (eighths(v.shape) for v in (a, b, c))
            strides = [40, 48, 56]
            on = [Buffer(padded(x, layout, s)) for x, layout, s in zip((a, b, c), layouts, strides, strict=True)]
            launch(Module(fragment_kernel(shape, kind, total, counts, layouts, strides)).kernel("k"), (1,), (32,), *on)
            wrong(
                f"wmma.{shape}.{kind}.{total} {layouts}", on[2].read(), padded(product(a, b, c, total), layouts[2], 56)
            )


def rows() -> None:
    """ldmatrix: lane 8 i + r has row r of matrix i; each lane gets a pair of a row, transposed of a column."""
    tiles = rng.integers(0, 65536, (4, 8, 8)).astype(U2)
    for count in (1, 2, 4):
        for transposed in (False, True):
            mode = f"sync.aligned.m8n8.x{count}{'.trans' * transposed}.shared.b16"
            names = "{" + ", ".join(f"%d{i}" for i in range(count)) + "}"
            stores = "".join(f"st.global.b32 [%o+{128 * i}], %d{i};\n" for i in range(count))
            copies = "".join(f"ld.global.b32 %r, [%p+{4 * i}]; st.shared.b32 [%s+{4 * i}], %r;\n" for i in range(4))
            back = "".join(f"ld.shared.b32 %r, [%s+{4 * i}]; st.global.b32 [%p+{4 * i}], %r;\n" for i in range(4))
            text = f"""{HEAD}.visible .entry k(.param .u64 out, .param .u64 in) {{
.shared .align 16 .b8 tile[512]; .reg .b64 %o, %p; .reg .b32 %s, %i, %r, %d<4>;
ld.param.u64 %o, [out]; ld.param.u64 %p, [in]; mov.u32 %i, %tid.x; mov.u32 %s, tile; mad.lo.u32 %s, %i, 16, %s;
mad.wide.u32 %p, %i, 16, %p; mad.wide.u32 %o, %i, 4, %o;
{copies}bar.sync 0;
ldmatrix.{mode} {names}, [%s];
{stores}bar.sync 0;
stmatrix.{mode.replace(".trans", "") if transposed else mode.replace(".shared", ".trans.shared")} [%s], {names};
bar.sync 0;
{back}ret; }}"""
            out, source = Buffer(np.zeros((4, 32), U4)), Buffer(tiles)
            launch(Module(text).kernel("k"), (1,), (32,), out, source)
            turned = tiles.transpose(0, 2, 1)
            wanted = (turned if transposed else tiles)[:count].reshape(count, 32, 2).copy().view(U4).reshape(count, 32)
            wrong(f"ldmatrix.{mode}", out.read()[:count], wanted)
            wrong(f"stmatrix after ldmatrix.{mode}", source.read()[:count], turned[:count])
    text = f"""{HEAD}.visible .entry k(.param .u64 a) {{ .reg .b64 %a; .reg .b32 %i, %x;
ld.param.u64 %a, [a]; mov.u32 %i, %tid.x; mad.wide.u32 %a, %i, 4, %a; ld.global.b32 %x, [%a];
movmatrix.sync.aligned.m8n8.trans.b16 %x, %x; st.global.b32 [%a], %x; ret; }}"""
    tile = Buffer(tiles[0])
    launch(Module(text).kernel("k"), (1,), (32,), tile)
    wrong("movmatrix", tile.read(), tiles[0].T)


def main() -> None:
    np.seterr(all="ignore")
    start()
    for shape in ("m16n8k16", "m16n8k8"):
        multiply(shape, "f32", "f16", "f16", "f32")
        multiply(shape, "f16", "f16", "f16", "f16")
        multiply(shape, "f32", "bf16", "bf16", "f32")
    multiply("m16n8k8", "f32", "tf32", "tf32", "f32")
    multiply("m16n8k4", "f32", "tf32", "tf32", "f32")
    for shape in ("m16n8k32", "m16n8k16", "m8n8k16"):
        for a, b in (("s8", "s8"), ("u8", "u8"), ("s8", "u8"), ("u8", "s8")):
            multiply(shape, "s32", a, b, "s32")
            multiply(shape, "s32", a, b, "s32", ".satfinite")
    for a, b in (("e4m3", "e4m3"), ("e5m2", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e5m2")):
        multiply("m16n8k32", "f32", a, b, "f32")
        multiply("m16n8k32", "f16", a, b, "f16")
    multiply("m8n8k4", "f64", "f64", "f64", "f64")
    special_values()
    fragments_of_wmma()
    rows()


main()
