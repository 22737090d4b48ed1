"""Every instruction on f16 and bf16 against exact arithmetic in fractions; one JSON line per instruction.

A line has the instruction, how many results were compared, and the first three that differ.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache

import ml_dtypes
import numpy as np
from device import Array, Buffer, Module, launch, start
from one import HEAD, apply

U2, U4, U8 = np.uint16, np.uint32, np.uint64
Number = Fraction | float  # a float is inf, nan or a zero with its sign
FORMATS = {"f16": (10, -14), "bf16": (7, -126)}
rng = np.random.default_rng(14)


@cache
def number_of(bits: int, form: str) -> Number:
    """The value of sixteen bits."""
    fraction_bits, least = FORMATS[form]
    sign = -1 if bits >> 15 else 1
    exponent, fraction = (bits & 0x7FFF) >> fraction_bits, bits & ((1 << fraction_bits) - 1)
    if exponent == 3 - 2 * least:
        return math.nan if fraction else sign * math.inf
    if not exponent and not fraction:
        return sign * 0.0
    whole = fraction if not exponent else fraction + (1 << fraction_bits)
    power = (exponent or 1) - 1 + least - fraction_bits
    return sign * whole * (Fraction(2) ** power)


def bits_of(value: Number, form: str, rounding: str = "rn") -> int:
    """Sixteen bits for a value, rounded once."""
    fraction_bits, least = FORMATS[form]
    infinity = (3 - 2 * least) << fraction_bits
    if isinstance(value, float):
        if math.isnan(value):
            return 0x7FFF
        sign = 0x8000 if math.copysign(1, value) < 0 else 0
        return sign | (0 if value == 0 else infinity)
    sign, size = (0x8000, -value) if value < 0 else (0, value)
    top = size.numerator.bit_length() - size.denominator.bit_length()  # denominators are powers of two
    power = max(least, top) - fraction_bits
    whole = size.numerator << max(-power, 0)
    part = size.denominator << max(power, 0)
    low, rest = divmod(whole, part)
    up = {"rn": 2 * rest > part or (2 * rest == part and low % 2), "rm": sign and rest, "rp": not sign and rest}
    low += bool(up.get(rounding))
    found = low + ((power - (least - fraction_bits)) << fraction_bits)
    if found >= infinity:
        away = rounding == "rn" or (rounding == "rm" and sign) or (rounding == "rp" and not sign)
        found = infinity if away else infinity - 1
    return sign | found


def is_nan(x: Number) -> bool:
    return isinstance(x, float) and math.isnan(x)


def plus(x: Number, y: Number) -> Number:
    if isinstance(x, float) and isinstance(y, float):
        return x + y
    if isinstance(x, float):
        return y if x == 0 else x
    if isinstance(y, float):
        return x if y == 0 else y
    return x + y if x + y else 0.0


def times(x: Number, y: Number) -> Number:
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return x * y
    signs = math.copysign(1, x) * math.copysign(1, y)
    zero, infinite = 0.0 in (x, y), any(isinstance(v, float) and math.isinf(v) for v in (x, y))
    if is_nan(x) or is_nan(y) or (zero and infinite):
        return math.nan
    return signs * (0.0 if zero else math.inf)


def minus(x: Number) -> Number:
    return -x


def lesser(x: Number, y: Number) -> Number:
    if is_nan(x) or is_nan(y):
        return y if is_nan(x) else x
    return x if x < y or (x == y and math.copysign(1, x) < 0) else y


def greater(x: Number, y: Number) -> Number:
    return minus(lesser(minus(x), minus(y)))


def saturated(x: Number) -> Number:
    return 0.0 if is_nan(x) or x <= 0 else Fraction(1) if x > 1 else x


def rectified(x: Number) -> Number:
    return x if is_nan(x) else 0.0 if x <= 0 else x


def samples(form: str, arguments: int) -> list[Array]:
    """All pairs of special values, then random bits, then neighbours of ties."""
    fraction_bits, least = FORMATS[form]
    infinity, one = (3 - 2 * least) << fraction_bits, (-least + 1) << fraction_bits
    special = [0, 1, 2, (1 << fraction_bits) - 1, 1 << fraction_bits, one, one + 1, one - 1, infinity - 1, infinity]
    special = [*special, *(value | 0x8000 for value in special), infinity + 1, 0xFFFF]
    pairs = np.array([(x, y) for x in special for y in special], U2)
    third = rng.permutation(np.resize(np.array(special, U2), len(pairs)))
    columns = [pairs[:, 0], pairs[:, 1], third]
    near = [(one + rng.integers(-3000, 3000, 600)).astype(U2) | (rng.integers(0, 2, 600) << 15).astype(U2)]
    more = [np.concatenate([rng.integers(0, 65536, 600).astype(U2), near[0]]) for _ in range(3)]
    joined = [np.concatenate([column, more[i]]) for i, column in enumerate(columns)]
    length = len(joined[0]) // 64 * 64
    return [column[:length] for column in joined[:arguments]]


def shown(found: Array, expected: Array, inputs: list[Array]) -> list[str]:
    wrong = np.flatnonzero(found != expected)[:3]
    return [f"{[hex(int(a[i])) for a in inputs]}: {int(found[i]):#x}, not {int(expected[i]):#x}" for i in wrong]


def report(name: str, found: Array, expected: Array, inputs: list[Array]) -> None:
    print(json.dumps({"instruction": name, "compared": len(found), "wrong": shown(found, expected, inputs)}))


def check(name: str, form: str, arguments: int, exact: Callable[..., Number], flush: bool = False) -> None:
    """The instruction on one number and on pairs of them."""
    inputs = samples(form, arguments)
    fraction_bits = FORMATS[form][0]

    def flushed(bits: int) -> int:
        return bits & 0x8000 if flush and not (bits & 0x7FFF) >> fraction_bits else bits

    rows = zip(*(array.tolist() for array in inputs), strict=True)
    values = [flushed(bits_of(exact(*(number_of(flushed(x), form) for x in row)), form)) for row in rows]
    expected = np.array(values, U2)
    operands = ", ".join("%" + "abc"[i] for i in range(arguments))
    report(f"{name}.{form}", apply(f"{name}.{form} %d, {operands};", inputs, U2), expected, inputs)
    found = apply(f"{name}.{form}x2 %d, {operands};", [array.view(U4) for array in inputs], U4).view(U2)
    report(f"{name}.{form}x2", found, expected, inputs)


def arithmetic() -> None:
    for form in FORMATS:
        check("add.rn", form, 2, plus)
        check("sub", form, 2, lambda x, y: plus(x, minus(y)))
        check("mul", form, 2, times)
        check("fma.rn", form, 3, lambda x, y, z: plus(times(x, y), z))
        check("fma.rn.relu", form, 3, lambda x, y, z: rectified(plus(times(x, y), z)))
        check("min", form, 2, lesser)
        check("max", form, 2, greater)
        check("min.NaN", form, 2, lambda x, y: math.nan if is_nan(x) or is_nan(y) else lesser(x, y))
        check("max.NaN", form, 2, lambda x, y: math.nan if is_nan(x) or is_nan(y) else greater(x, y))
    check("add.ftz", "f16", 2, plus, flush=True)
    check("fma.rn.ftz", "f16", 3, lambda x, y, z: plus(times(x, y), z), flush=True)
    check("mul.ftz", "f16", 2, times, flush=True)
    check("add.sat", "f16", 2, lambda x, y: saturated(plus(x, y)))
    check("fma.rn.sat", "f16", 3, lambda x, y, z: saturated(plus(times(x, y), z)))


def signs() -> None:
    everything = np.arange(65536).astype(U2)
    for form in FORMATS:
        for name, expected in ((f"neg.{form}", everything ^ 0x8000), (f"abs.{form}", everything & 0x7FFF)):
            report(name, apply(f"{name} %d, %a;", [everything], U2), expected, [everything])
            pairs = apply(f"{name}x2 %d, %a;", [everything.view(U4)], U4).view(U2)
            report(f"{name}x2", pairs, expected, [everything])


def approximations() -> None:
    """Within one step of the exact result: better than the 2^-9.9 of ex2 and 2^-10.9 of tanh that PTX asks for."""
    everything = np.arange(65536).astype(U2)
    for form, kind in (("f16", np.float16), ("bf16", ml_dtypes.bfloat16)):
        values = everything.view(kind).astype(np.float64)
        power = "ex2.approx.ftz.bf16" if form == "bf16" else "ex2.approx.f16"
        for name, function in ((f"tanh.approx.{form}", np.tanh), (power, np.exp2)):
            least = 2.0**-126 if "ftz" in name else 0.0
            expected = function(np.where(np.abs(values) < least, 0, values)).astype(kind)
            expected = np.where(np.abs(expected.astype(np.float64)) < least, 0, expected).astype(kind)
            wanted = np.where(np.isnan(values), U2(0x7FFF), expected.view(U2))
            found = apply(f"{name} %d, %a;", [everything], U2)
            near = np.where(np.abs(found.astype(int) - wanted.astype(int)) <= 1, wanted, found)
            report(name, near, wanted, [everything])
            pairs = apply(f"{name}x2 %d, %a;", [everything.view(U4)], U4).view(U2)
            report(f"{name}x2", pairs, found, [everything])


def comparisons() -> None:
    def tests(x: Array, y: Array) -> Iterator[tuple[str, Array]]:
        unordered = np.isnan(x) | np.isnan(y)
        plain = {"eq": x == y, "ne": ~unordered & (x != y), "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}
        yield from plain.items()
        yield from ((f"{name}u", plain[name] | unordered) for name in plain)
        yield from (("num", ~unordered), ("nan", unordered))

    for form, kind in (("f16", np.float16), ("bf16", ml_dtypes.bfloat16)):
        a, b = samples(form, 2)
        x, y = (array.view(kind).astype(np.float64) for array in (a, b))
        one = {"f16": 0x3C00, "bf16": 0x3F80}[form]
        for name, expected in tests(x, y):
            choice = "selp.u32 %d, 1, 0, %p0;"
            found = apply(f"setp.{name}.{form} %p0, %a, %b; {choice}", [a, b], U4)
            report(f"setp.{name}.{form}", found, expected * 1, [a, b])
            pair = "selp.u32 %r0, 1, 0, %p0; selp.u32 %r1, 65536, 0, %p1; or.b32 %d, %r0, %r1;"
            both = apply(f"setp.{name}.{form}x2 %p0|%p1, %a, %b; {pair}", [a.view(U4), b.view(U4)], U4).view(U2)
            report(f"setp.{name}.{form}x2", both, expected * 1, [a, b])
            found = apply(f"set.{name}.{form}x2.{form}x2 %d, %a, %b;", [a.view(U4), b.view(U4)], U4).view(U2)
            report(f"set.{name}.{form}x2.{form}x2", found, expected * one, [a, b])
        for to, yes, size in ((form, one, U2), ("u16", 0xFFFF, U2), ("u32", 0xFFFFFFFF, U4)):
            found = apply(f"set.gtu.{to}.{form} %d, %a, %b;", [a, b], size)
            report(f"set.gtu.{to}.{form}", found, np.where(~(x <= y), size(yes), size(0)), [a, b])
        found = apply(f"set.lt.u32.{form}x2 %d, %a, %b;", [a.view(U4), b.view(U4)], U4).view(U2)
        report(f"set.lt.u32.{form}x2", found, (x < y) * 0xFFFF, [a, b])
        chosen = "setp.eq.u32 %p2, %i, 0; not.pred %p2, %p2; setp.lt.and.{0}x2 %p2|%p1, %a, %b, %p2; "
        chosen += "selp.u32 %r0, 1, 0, %p2; selp.u32 %r1, 65536, 0, %p1; or.b32 %d, %r0, %r1;"
        both = apply(chosen.format(form), [a.view(U4), b.view(U4)], U4).view(U2)
        wanted = (x < y) * 1
        wanted[:2] = 0
        report(f"setp.lt.and.{form}x2", both, wanted, [a, b])


def floats() -> Array:
    """Singles around every boundary of the two formats."""
    bits = rng.integers(0, 2**32, 2048, dtype=np.uint64).astype(U4)
    halves = np.arange(0, 65536, 37).astype(U2).view(np.float16).astype(np.float32).view(U4)
    near = np.concatenate([halves, halves + 1, halves - 1, halves + 0x1000, halves + 0xFFF, halves + 0x1001])
    special = np.array([0, 0x80000000, 1, 0x80000001, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0x7F7FFFFF], U4)
    joined = np.concatenate([bits, near, special, special, special, special])
    joined = joined[: len(joined) // 64 * 64]
    return joined.view(np.float32)


def conversions() -> None:
    singles = floats()
    values: list[Number] = [
        Fraction(float(x)) if np.isfinite(x) and x != 0 else float(x) for x in singles.astype(np.float64)
    ]
    everything = np.arange(65536).astype(U2)
    for form, kind in (("f16", np.float16), ("bf16", ml_dtypes.bfloat16)):
        for rounding in ("rn", "rz", "rm", "rp") if form == "f16" else ("rn", "rz"):
            expected = np.array([bits_of(x, form, rounding) for x in values], U2)
            name = f"cvt.{rounding}.{form}.f32"
            report(name, apply(f"{name} %d, %a;", [singles], U2), expected, [singles.view(U4)])
            if rounding in ("rn", "rz"):
                swapped = singles.reshape(-1, 2)[:, ::-1].copy()  # the second operand is the low half
                name = f"cvt.{rounding}.{form}x2.f32"
                found = apply(f"{name} %d, %a, %b;", [swapped[:, 0].copy(), swapped[:, 1].copy()], U4).view(U2)
                report(name, found, expected, [singles.view(U4)])
        for name in (f"cvt.rn.relu.{form}.f32", f"cvt.rn.relu.{form}x2.f32"):
            expected = np.array([bits_of(rectified(x), form) for x in values], U2)
            if "x2" in name:
                found = apply(f"{name} %d, %b, %a;", [singles[::2].copy(), singles[1::2].copy()], U4).view(U2)
            else:
                found = apply(f"{name} %d, %a;", [singles], U2)
            report(name, found, expected, [singles.view(U4)])
        wide = everything.view(kind).astype(np.float32)
        found = apply(f"cvt.f32.{form} %d, %a;", [everything], np.float32)
        same = (found.view(U4) == wide.view(U4)) | (np.isnan(found) & np.isnan(wide))
        report(f"cvt.f32.{form}", same * 1, np.ones(65536, int), [everything])
        integers = np.concatenate([rng.integers(-(2**63), 2**63, 1000), np.arange(-1024, 1024) * 37, [0] * 24])
        integers = np.concatenate([integers, (1 << 62) + (1 << 54) + np.arange(-32, 32), 257 + 2 * np.arange(64)])
        integers = integers[: len(integers) // 32 * 32].astype(np.int64)
        expected = np.array([bits_of(Fraction(int(x)) if x else 0.0, form) for x in integers], U2)
        report(f"cvt.rn.{form}.s64", apply(f"cvt.rn.{form}.s64 %d, %a;", [integers], U2), expected, [integers])
        finite = np.nan_to_num(everything.view(kind).astype(np.float64), nan=0.0, posinf=1e300, neginf=-1e300)
        truncated = np.clip(np.trunc(finite), -(2.0**31), 2.0**31 - 1).astype(np.int64).astype(np.int32)
        found = apply(f"cvt.rzi.s32.{form} %d, %a;", [everything], np.int32)
        report(f"cvt.rzi.s32.{form}", found, truncated, [everything])
    bits = singles.view(U4)
    away = ((bits.astype(U8) + 0x1000) & 0xFFFFE000).astype(U4)
    special = (bits & 0x7F800000) == 0x7F800000
    wanted = np.where(np.isnan(singles), U4(0x7FFFFFFF), np.where(special, bits, away))
    report("cvt.rna.tf32.f32", apply("cvt.rna.tf32.f32 %d, %a;", [singles], U4), wanted, [bits])


def atomics() -> None:
    """256 threads add one to two counters of each format, and each sees another value."""
    for form, one, kind in (("f16", 0x3C00, np.float16), ("bf16", 0x3F80, ml_dtypes.bfloat16)):
        text = f"""{HEAD}.visible .entry k(.param .u64 p, .param .u64 o) {{
.reg .b64 %p, %o; .reg .b32 %i, %x, %y; .reg .b16 %h, %g;
ld.param.u64 %p, [p]; ld.param.u64 %o, [o]; mov.u32 %i, %tid.x; mov.b16 %h, {one}; mov.b32 %x, {{%h, %h}};
atom.global.add.noftz.{form}x2 %y, [%p], %x;
atom.global.add.noftz.{form} %g, [%p+4], %h;
red.global.gpu.relaxed.add.noftz.{form} [%p+6], %h;
mad.wide.u32 %o, %i, 4, %o; st.global.b32 [%o], %y; ret; }}"""
        counters, seen = Buffer(np.zeros(4, U2)), Buffer(np.zeros(256, U4))
        launch(Module(text).kernel("k"), (1,), (256,), counters, seen)
        report(f"atom.add.noftz.{form}x2", counters.read(), np.full(4, 256).astype(kind).view(U2), [np.arange(4)])
        old = np.sort(seen.read().view(U2).view(kind).astype(np.float64))
        report(f"values seen by atom.{form}x2", old, np.repeat(np.arange(256.0), 2), [np.arange(512)])


def main() -> None:
    np.seterr(all="ignore")  # NaNs and overflows are the point
    start()
    for group in (arithmetic, signs, approximations, comparisons, conversions, atomics):
        group()


main()
