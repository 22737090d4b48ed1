"""Packed integers, masks of bits, copies and barriers against plain Python; one JSON line per instruction."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import numpy as np
from cuda.bindings import driver
from device import Array, Buffer, CudaError, Module, check, launch, start
from one import HEAD, apply

U4, I4, F = np.uint32, np.int32, np.float32
rng = np.random.default_rng(7)
ONES = 0xFFFFFFFF


def report(name: str, found: list[int], expected: list[int]) -> None:
    wrong = [f"{i}: {x:#x}, not {y:#x}" for i, (x, y) in enumerate(zip(found, expected, strict=True)) if x != y]
    print(json.dumps({"instruction": name, "compared": len(found), "wrong": wrong[:3]}), flush=True)


def words(small: int) -> Array:
    """Corners first, then small numbers, then any bits."""
    corners = [
        0,
        1,
        2,
        31,
        32,
        33,
        255,
        256,
        0x7FFFFFFF,
        0x80000000,
        0x80008000,
        0x7FFF7FFF,
        ONES,
        0x00FF00FF,
        0x80,
        0x7F,
    ]
    return np.concatenate(
        [rng.permutation(np.resize(np.array(corners, U4), 256)), rng.integers(0, small, 256).astype(U4),
         rng.integers(0, 2**32, 512, dtype=np.uint64).astype(U4)]
    )  # fmt: skip


def check_all(name: str, arguments: int, exact: Callable[..., int], small: int = 40) -> None:
    inputs = [words(small) for _ in range(arguments)]
    operands = ", ".join("%" + "abc"[i] for i in range(arguments))
    found = apply(f"{name} %d, {operands};", inputs, U4)
    rows = zip(*(array.tolist() for array in inputs), strict=True)
    report(name, found.tolist(), [exact(*row) & ONES for row in rows])


def signed(x: int, bits: int = 32) -> int:
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def ones(at: int, count: int) -> int:
    return sum(1 << i for i in range(at, min(at + count, 32)))


def extended(x: int, n: int, is_signed: bool) -> int:
    if n == 0:
        return 0
    low = x & ((1 << n) - 1)
    return signed(low, n) if is_signed else low


def nth(mask: int, base: int, offset: int) -> int:
    if base > 31:
        return ONES
    if offset == 0:
        return base if mask >> base & 1 else ONES
    way = range(base, 32) if offset > 0 else range(base, -1, -1)
    found = [at for at in way if mask >> at & 1]
    return found[abs(offset) - 1] if len(found) >= abs(offset) else ONES


def parts(x: int, bits: int, is_signed: bool) -> list[int]:
    pieces = [(x >> at) & ((1 << bits) - 1) for at in range(0, 32, bits)]
    return [signed(piece, bits) for piece in pieces] if is_signed else pieces


def joined(pieces: list[int], bits: int) -> int:
    return sum((piece & ((1 << bits) - 1)) << (bits * i) for i, piece in enumerate(pieces))


def clamped(x: int, bits: int, is_signed: bool) -> int:
    most = (1 << (bits - is_signed)) - 1
    return max(min(x, most), -most - 1 if is_signed else 0)


def masks() -> None:
    check_all("bmsk.clamp.b32", 2, lambda x, y: ones(min(x, 32), min(y, 32)))
    check_all("bmsk.wrap.b32", 2, lambda x, y: ones(x & 31, y & 31))
    check_all("szext.clamp.s32", 2, lambda x, y: extended(x, min(y, 32), True))
    check_all("szext.wrap.s32", 2, lambda x, y: extended(x, y & 31, True))
    check_all("szext.clamp.u32", 2, lambda x, y: extended(x, min(y, 32), False))
    check_all("szext.wrap.u32", 2, lambda x, y: extended(x, y & 31, False))
    check_all("fns.b32", 3, lambda x, y, z: nth(x, y, signed(z)))


def products() -> None:
    for half in ("lo", "hi"):
        for a in (False, True):
            for b in (False, True):

                def dot(x: int, y: int, z: int, a: bool = a, b: bool = b, half: str = half) -> int:
                    chosen = parts(y, 8, b)[:2] if half == "lo" else parts(y, 8, b)[2:]
                    return z + sum(p * q for p, q in zip(parts(x, 16, a), chosen, strict=True))

                check_all(f"dp2a.{half}.{'us'[a]}32.{'us'[b]}32", 3, dot)
    check_all("mul24.hi.u32", 2, lambda x, y: (x & 0xFFFFFF) * (y & 0xFFFFFF) >> 16)
    check_all("mul24.hi.s32", 2, lambda x, y: signed(x, 24) * signed(y, 24) >> 16)
    check_all("mad24.lo.s32", 3, lambda x, y, z: signed(x, 24) * signed(y, 24) + z)
    check_all("mad24.hi.u32", 3, lambda x, y, z: ((x & 0xFFFFFF) * (y & 0xFFFFFF) >> 16) + z)
    check_all("mad.hi.sat.s32", 3, lambda x, y, z: clamped((signed(x) * signed(y) >> 32) + signed(z), 32, True))


def lanes() -> None:
    check_all("max.relu.s32", 2, lambda x, y: max(signed(x), signed(y), 0))
    check_all("min.s32.relu", 2, lambda x, y: max(min(signed(x), signed(y)), 0))
    operations: dict[str, Callable[[int, int], int]] = {
        "add": lambda x, y: x + y, "min": min, "max": max, "sub": lambda x, y: x - y,
        "absdiff": lambda x, y: abs(x - y),
    }  # fmt: skip
    for name in ("add", "min", "max"):
        for is_signed in (False, True):

            def pairs(x: int, y: int, name: str = name, s: bool = is_signed) -> int:
                both = zip(parts(x, 16, s), parts(y, 16, s), strict=True)
                return joined([operations[name](p, q) for p, q in both], 16)

            check_all(f"{name}.{'us'[is_signed]}16x2", 2, pairs)
    check_all(
        "max.s16x2.relu", 2,
        lambda x, y: joined([max(p, q, 0) for p, q in zip(parts(x, 16, True), parts(y, 16, True), strict=True)], 16),
    )  # fmt: skip
    for name in ("add", "sub", "absdiff", "min", "max"):
        for count in (2, 4):
            for more in ("", ".sat", ".add"):
                for kind in ("u32", "s32"):

                    def video(
                        x: int, y: int, z: int, name: str = name, bits: int = 32 // count, s: bool = kind == "s32",
                        more: str = more,
                    ) -> int:  # fmt: skip
                        both = zip(parts(x, bits, s), parts(y, bits, s), strict=True)
                        pieces = [operations[name](p, q) for p, q in both]
                        pieces = [clamped(p, bits, s) for p in pieces] if more == ".sat" else pieces
                        return z + sum(pieces) if more == ".add" else joined(pieces, bits)

                    check_all(f"v{name}{count}.{kind}.{kind}.{kind}{more}", 3, video)
    check_all("cvt.pack.sat.s16.s32", 2, lambda x, y: joined([clamped(signed(v), 16, True) for v in (y, x)], 16))
    check_all(
        "cvt.pack.sat.u8.s32.b32", 3,
        lambda x, y, z: joined([clamped(signed(v), 8, False) for v in (y, x)], 8) | z << 16,
    )  # fmt: skip
    third = "setp.lt.u32 %p0, %c, 0x80000000; "
    inputs = [words(9) for _ in range(3)]
    rows = list(zip(*(array.tolist() for array in inputs), strict=True))
    found = apply(third + "set.gt.xor.u32.s32 %d, %a, %b, %p0;", inputs, U4).tolist()
    report("set.gt.xor.u32.s32", found, [ONES * ((signed(x) > signed(y)) ^ (z < 1 << 31)) for x, y, z in rows])


def parts_of_registers() -> None:
    """mov into a wider register, with a number as a part."""
    inputs = [rng.integers(0, 65536, 64).astype(np.uint16)]
    values = inputs[0].tolist()
    report("mov.b32 d, {0, a}", apply("mov.b32 %d, {0, %a};", inputs, U4).tolist(), [x << 16 for x in values])
    found = apply("mov.b32 %d, {%a, 0xBEEF};", inputs, U4).tolist()
    report("mov.b32 d, {a, 0xBEEF}", found, [x | 0xBEEF0000 for x in values])


def extremes() -> None:
    """min and max of floats by magnitude, with the product of the signs; not a number wins or loses."""
    special = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-40, -1e-40, 3.5, -3.5, 1e38, -1e38, 1e-38, 2, -2]
    a, b = (np.array(side, F) for side in zip(*((x, y) for x in special for y in special), strict=True))

    def exact(x: float, y: float, greatest: bool, wins: bool, flush: bool, xors: bool) -> float:
        if flush:
            x, y = (math.copysign(0, v) if abs(v) < 2.0**-126 else v for v in (x, y))
        if math.isnan(x) or math.isnan(y):
            chosen = math.nan if wins or (math.isnan(x) and math.isnan(y)) else y if math.isnan(x) else x
            chosen = abs(chosen) if xors else chosen
        else:
            p, q = (abs(x), abs(y)) if xors else (x, y)
            ordered = sorted((p, q), key=lambda v: (v, math.copysign(1, v)))
            chosen = ordered[greatest]
        return math.copysign(chosen, math.copysign(1, x) * math.copysign(1, y)) if xors else chosen

    for greatest in (False, True):
        for flags in (".ftz.NaN", ".xorsign.abs", ".ftz.xorsign.abs", ".NaN.xorsign.abs", ".ftz.NaN.xorsign.abs"):
            name = f"{'max' if greatest else 'min'}{flags}.f32"
            found = apply(f"{name} %d, %a, %b;", [a, b], F)
            pairs = zip(a.tolist(), b.tolist(), strict=True)
            wanted = [exact(x, y, greatest, "NaN" in flags, "ftz" in flags, "xorsign" in flags) for x, y in pairs]
            expected = np.array(wanted, F)
            nans = np.isnan(found) & np.isnan(expected)
            bits = np.where(nans, U4(0), found.view(U4)), np.where(nans, U4(0), expected.view(U4))
            report(name, bits[0].tolist(), bits[1].tolist())


def copies() -> None:
    """cp.async of every size; what lies behind the size of the source is zero and is not read."""
    for size in (4, 8, 16):
        for extra in ("", ", %n", ", %q"):
            if size < 16 and extra == ", %q":
                continue
            level = "cg" if size == 16 else "ca"
            text = f"""{HEAD}.visible .entry k(.param .u64 o, .param .u64 a, .param .u64 n) {{
.shared .align 16 .b8 tile[512]; .reg .b64 %o, %a, %w, %policy; .reg .b32 %s, %i, %n, %r; .reg .pred %q;
ld.param.u64 %o, [o]; ld.param.u64 %a, [a]; ld.param.u64 %w, [n]; mov.u32 %i, %tid.x; mov.u32 %s, tile;
mad.lo.u32 %s, %i, {size}, %s; mad.wide.u32 %a, %i, {size}, %a; mad.wide.u32 %o, %i, {size}, %o;
mad.wide.u32 %w, %i, 4, %w; ld.global.u32 %n, [%w]; setp.gt.u32 %q, %n, 3;
createpolicy.fractional.L2::evict_first.b64 %policy, 1.0;
cp.async.{level}.shared.global.L2::cache_hint.L2::128B [%s], [%a], {size}{extra}, %policy;
cp.async.commit_group; cp.async.wait_group 0; cp.async.wait_all;
bar.sync 0;
{"".join(f"ld.shared.b32 %r, [%s+{4 * j}]; st.global.b32 [%o+{4 * j}], %r;" for j in range(size // 4))}
ret; }}"""
            source = Buffer(rng.integers(1, 256, (32, size)).astype(np.uint8))
            counts = Buffer(rng.integers(0, size + 3, 32).astype(U4))
            out = Buffer(np.full((32, size), 77, np.uint8))
            launch(Module(text).kernel("k"), (1,), (32,), out, source, counts)
            expected = source.array.copy()
            for lane, count in enumerate(counts.array.tolist()):
                if extra == ", %n":
                    expected[lane, count:] = 0
                elif extra and count > 3:
                    expected[lane] = 0
            report(f"cp.async {size}{extra}", out.read().ravel().tolist(), expected.ravel().tolist())


def barriers() -> None:
    """Three phases of an mbarrier: each thread sees what all wrote in the phase before."""
    text = f"""{HEAD}.visible .entry k(.param .u64 o) {{
.shared .align 8 .b64 b; .shared .align 4 .b32 count; .reg .b64 %o, %t; .reg .b32 %i, %x, %y, %left; .reg .pred %p, %q;
ld.param.u64 %o, [o]; mov.u32 %i, %tid.x; mad.wide.u32 %o, %i, 12, %o; setp.eq.u32 %p, %i, 0;
@%p mbarrier.init.shared::cta.b64 [b], 96;
@%p st.shared.u32 [count], 0;
bar.sync 0;
atom.shared.add.u32 %x, [count], 1;
mbarrier.arrive.shared.b64 %t, [b];
wait1: mbarrier.test_wait.shared.b64 %q, [b], %t; @!%q bra wait1;
ld.shared.u32 %y, [count]; st.global.u32 [%o], %y;
mbarrier.arrive.release.cta.shared::cta.b64 _, [b];
wait2: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %q, [b], 1, 1000; @!%q bra wait2;
atom.shared.add.u32 %x, [count], 1;
mbarrier.arrive.shared.b64 %t, [b], 1;
mbarrier.pending_count.b64 %left, %t;
wait3: mbarrier.test_wait.parity.shared.b64 %q, [b], 0; @!%q bra wait3;
ld.shared.u32 %y, [count]; st.global.u32 [%o+4], %y; st.global.u32 [%o+8], %left;
bar.sync 0;
@%p mbarrier.inval.shared.b64 [b];
ret; }}"""
    out = Buffer(np.zeros((96, 3), U4))
    launch(Module(text).kernel("k"), (1,), (96,), out)
    found = out.read()
    report("mbarrier", found[:, 0].tolist() + found[:, 1].tolist(), [96] * 96 + [192] * 96)
    report("mbarrier.pending_count", sorted(found[:, 2].tolist()), list(range(1, 97)))


def faults() -> None:
    """Bad copies and barriers end the launch with CUDA's error, and nothing else."""
    cases = {
        "cp.async.ca.shared.global [tile], [%o+1], 4;": "CUDA_ERROR_MISALIGNED_ADDRESS",
        "cp.async.ca.shared.global [tile], [%z], 4, %four;": "CUDA_ERROR_ILLEGAL_ADDRESS",
        "cp.async.cg.shared.global [tile+64], [%o], 16;": "CUDA_ERROR_ILLEGAL_ADDRESS",
        "cp.async.ca.shared.global [tile], [%z], 4, 0;": "CUDA_SUCCESS",
        "mbarrier.init.shared.b64 [tile], 0;": "CUDA_ERROR_ILLEGAL_INSTRUCTION",
        "mbarrier.arrive.shared.b64 _, [tile+8];": "CUDA_ERROR_ILLEGAL_INSTRUCTION",
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r}, [tile+64];": "CUDA_ERROR_ILLEGAL_ADDRESS",
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r}, [tile+2];": "CUDA_ERROR_MISALIGNED_ADDRESS",
        "wmma.load.a.sync.aligned.row.m16n16k16.global.s8 {%r, %r}, [%o], 0x7fffffff;": "CUDA_ERROR_ILLEGAL_ADDRESS",
        "wmma.store.d.sync.aligned.row.m16n16k16.shared.s32 [tile], {%r, %r, %r, %r, %r, %r, %r, %r}, 16;":
            "CUDA_ERROR_ILLEGAL_ADDRESS",
    }  # fmt: skip
    for piece, expected in cases.items():
        text = f"""{HEAD}.visible .entry k(.param .u64 o) {{ .shared .align 16 .b8 tile[64];
.reg .b64 %o, %z; .reg .b32 %r, %four; ld.param.u64 %o, [o]; mov.u64 %z, 64; mov.u32 %four, 4;
{piece} ret; }}"""
        context = check(driver.cuCtxCreate(None, 0, 0))
        out = Buffer(np.zeros(256, U4))
        found = "CUDA_SUCCESS"
        try:
            launch(Module(text).kernel("k"), (1,), (32,), out)
            check(driver.cuCtxSynchronize())
        except CudaError as error:
            found = str(error)
        driver.cuCtxDestroy(context)
        right = [] if found == expected else [f"{found}, not {expected}"]
        print(json.dumps({"instruction": piece, "compared": 1, "wrong": right}), flush=True)


def main() -> None:
    start()
    for group in (masks, products, lanes, parts_of_registers, extremes, copies, barriers, faults):
        group()


main()
