"""Random PTX kernels of a fixed seed: arithmetic, predicates, branches, loops, shared memory, barriers, vectors.

python random_kernels.py COUNT [SEED]    prints one JSON line per kernel: its number and a digest of what it wrote
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import sys

import numpy as np
from cuda.bindings import driver
from device import Buffer, Module, check, launch, start

BLOCKS = ((32,), (64,), (8, 4), (16, 16), (5, 3), (37,), (4, 4, 4), (1,), (2, 16))
WORDS = 4096
INTEGER = ("add.s32", "sub.s32", "mul.lo.s32", "and.b32", "or.b32", "xor.b32", "min.s32", "max.u32", "min.u32")
SHIFTS = ("shl.b32", "shr.u32", "shr.s32")
FLOAT = ("add.f32", "sub.f32", "mul.f32", "min.f32", "max.f32", "add.ftz.f32", "mul.sat.f32")
COMPARE = ("lt", "le", "gt", "ge", "eq", "ne")


class Writer:
    """Writes one kernel: eight integers, six floats, four predicates; every address is made to fit its buffer."""

    def __init__(self, chance: random.Random, block: tuple[int, ...]) -> None:
        self.chance, self.threads, self.width = chance, math.prod(block), block[0]
        self.lines: list[str] = []
        self.labels = 0

    def say(self, line: str) -> None:
        guard = self.chance.choice(("", "", "", f"@%p{self.chance.randrange(4)} ", f"@!%p{self.chance.randrange(4)} "))
        self.lines.append(guard + line if not line.startswith(("@", "$", "bar", "bra")) else line)

    def integer(self) -> str:
        return f"%i{self.chance.randrange(8)}"

    def float(self) -> str:
        return f"%x{self.chance.randrange(6)}"

    def source(self) -> str:
        return self.chance.choice((self.integer(), self.integer(), str(self.chance.randrange(-9, 40))))

    def address(self, limit: int) -> None:
        """%a: a place in the first `limit` words, the same for all, spaced evenly or in any way."""
        kind = self.chance.randrange(4)
        if kind == 0:
            self.lines.append(f"mov.u32 %t0, {self.chance.randrange(limit // 2)};")
        elif kind == 1:
            self.lines.append(f"mad.lo.s32 %t0, %tid.x, {self.chance.choice((1, 1, 2, 3))}, 7;")
        elif kind == 2:
            self.lines.append(f"add.s32 %t0, %flat, {self.chance.randrange(64)};")
        else:
            self.lines.append(f"mov.u32 %t0, {self.integer()};")
        self.lines.append(f"and.b32 %t0, %t0, {limit - 8};" if kind == 3 else f"rem.u32 %t0, %t0, {limit - 8};")

    def statement(self, depth: int) -> None:
        chance, kind = self.chance, self.chance.randrange(15)
        if kind <= 2:
            self.say(f"{chance.choice(INTEGER)} {self.integer()}, {self.source()}, {self.source()};")
        elif kind == 3:
            self.say(f"{chance.choice(SHIFTS)} {self.integer()}, {self.integer()}, {chance.randrange(34)};")
        elif kind == 4:
            self.say(f"{chance.choice(FLOAT)} {self.float()}, {self.float()}, {self.float()};")
        elif kind == 5:
            self.say(f"fma.rn.f32 {self.float()}, {self.float()}, {self.float()}, {self.float()};")
        elif kind == 6:
            test = chance.choice(COMPARE)
            self.say(f"setp.{test}.s32 %p{chance.randrange(4)}, {self.integer()}, {self.source()};")
        elif kind == 7:
            self.say(f"selp.b32 {self.integer()}, {self.integer()}, {self.source()}, %p{chance.randrange(4)};")
        elif kind == 8:
            self.say(f"cvt.rn.f32.s32 {self.float()}, {self.integer()};")
        elif kind == 9:
            self.load()
        elif kind == 10:
            self.store()
        elif kind == 11 and depth < 3:
            self.branch(depth)
        elif kind == 12 and depth < 2:
            self.loop(depth)
        elif kind >= 13:
            self.rows()

    def load(self) -> None:
        self.address(WORDS)
        wide = self.chance.choice((1, 1, 2, 4))
        self.lines.append(f"and.b32 %t0, %t0, {-wide};" if wide > 1 else "mov.u32 %t0, %t0;")
        self.lines.append("mul.wide.s32 %a, %t0, 4;")
        self.lines.append("add.s64 %a, %in, %a;")
        names = ", ".join(f"%i{(self.labels + k) % 8}" for k in range(wide))
        self.labels += 1
        self.say(f"ld.global.v{wide}.b32 {{{names}}}, [%a];" if wide > 1 else f"ld.global.b32 {names}, [%a];")

    def rows(self) -> None:
        """Neighbouring words from evenly spaced places, up to the last word of the buffer: read whole and turned."""
        chance = self.chance
        aligned = chance.random() < 0.3
        stride, span = chance.choice((4, 8, 36) if aligned else (1, 2, 3, 4, 8, 9, 36)), 4 * chance.randrange(1, 4)
        most = WORDS - span - stride * (self.width - 1)
        start = chance.choice((0, most, chance.randrange(most) // 4 * 4))
        self.lines.append(f"mad.lo.s32 %t0, %tid.x, {stride}, {start};")
        self.lines.append("mul.wide.s32 %a, %t0, 4;")
        self.lines.append("add.s64 %a, %in, %a;")
        shift, cast = chance.choice(((0, "s"), (0, "s"), (64, "s"), (5000, "u"), (2**31 - 40, "s"), (2**31 - 40, "u")))
        self.lines.append(f"sub.s32 %t3, %t0, {shift};")
        by_index = chance.random() < 0.5
        for word in chance.sample(range(span), chance.randrange(2, span + 1)):
            if by_index:  # the number is added to an index, which may wrap
                self.lines.append(f"add.s32 %t2, %t3, {shift + word};")
                self.lines.append(f"cvt.{cast}64.{cast}32 %b, %t2;")
                self.lines.append("mad.lo.s64 %b, %b, 4, %in;")
                self.lines.append("ld.global.b32 %t0, [%b];")
            elif aligned and word % 4 == 0:
                names = ", ".join(f"%t{k}" for k in range(4))
                self.lines.append(f"ld.global.v4.b32 {{{names}}}, [%a+{4 * word}];")
                self.say(f"sub.s32 {self.integer()}, %t3, %t1;")
            else:
                self.lines.append(f"ld.global.b32 %t0, [%a+{4 * word}];")
            self.say(f"xor.b32 {self.integer()}, {self.integer()}, %t0;")

    def rounds(self) -> None:
        """A loop with barriers that all threads run equally often."""
        self.labels += 1
        self.lines.append(f"mov.u32 %n3, {self.chance.randrange(1, 4)};")
        self.lines.append(f"$R{self.labels}:")
        label = self.labels
        self.exchange()
        for _ in range(self.chance.randrange(1, 5)):
            self.statement(1)
        if self.chance.random() < 0.5:
            self.exchange()
        self.lines.append("sub.s32 %n3, %n3, 1;")
        self.lines.append("setp.gt.s32 %q3, %n3, 0;")
        self.lines.append(f"@%q3 bra $R{label};")

    def store(self) -> None:
        """To a place of the thread's own, so that the order of threads does not show."""
        slot = self.chance.randrange(8)
        self.lines.append(f"mad.lo.s32 %t0, %global, 8, {slot};")
        self.lines.append("mul.wide.u32 %a, %t0, 4;")
        self.lines.append("add.s64 %a, %out, %a;")
        self.say(f"st.global.b32 [%a], {self.integer()};")

    def branch(self, depth: int) -> None:
        self.labels += 1
        label, other = f"$L{self.labels}", f"$M{self.labels}"
        both = self.chance.random() < 0.4
        self.lines.append(f"@{self.chance.choice(('', '!'))}%p{self.chance.randrange(4)} bra {label};")
        for _ in range(self.chance.randrange(1, 5)):
            self.statement(depth + 1)
        if both:
            self.lines.append(f"bra {other};")
        self.lines.append(f"{label}:")
        if both:
            for _ in range(self.chance.randrange(1, 4)):
                self.statement(depth + 1)
            self.lines.append(f"{other}:")

    def loop(self, depth: int) -> None:
        self.labels += 1
        label, count = f"$N{self.labels}", f"%n{depth}"
        rounds = self.chance.choice(("mov.u32 {}, 5;", "and.b32 {}, %flat, 7;", "and.b32 {}, %ctaid.x, 3;"))
        self.lines.append(rounds.format(count))
        self.lines.append(f"{label}:")
        for _ in range(self.chance.randrange(1, 6)):
            self.statement(depth + 1)
        self.lines.append(f"sub.s32 {count}, {count}, 1;")
        self.lines.append(f"setp.gt.s32 %q{depth}, {count}, 0;")
        self.lines.append(f"@%q{depth} bra {label};")

    def exchange(self) -> None:
        """Through shared memory: each thread writes its word and reads another's."""
        self.lines.append("shl.b32 %t0, %flat, 2;")
        self.lines.append("mov.u32 %t1, words;")
        self.lines.append("add.s32 %t0, %t0, %t1;")
        self.lines.append(f"st.shared.b32 [%t0], {self.integer()};")
        self.lines.append("bar.sync 0;")
        self.lines.append(f"add.s32 %t0, %flat, {self.chance.randrange(1, self.threads + 1)};")
        self.lines.append(f"rem.u32 %t0, %t0, {self.threads};")
        self.lines.append("shl.b32 %t0, %t0, 2;")
        self.lines.append("add.s32 %t0, %t0, %t1;")
        self.lines.append(f"ld.shared.b32 {self.integer()}, [%t0];")
        self.lines.append("bar.sync 0;")

    def text(self) -> str:
        for _ in range(self.chance.randrange(2, 5)):
            for _ in range(self.chance.randrange(3, 9)):
                self.statement(0)
            if self.chance.random() < 0.5:
                self.exchange()
            if self.chance.random() < 0.3:
                self.rounds()
        if self.chance.random() < 0.3:  # some leave early
            self.lines.append(f"@%p{self.chance.randrange(4)} bra $END;")
            self.statement(1)
            if self.chance.random() < 0.5:
                self.lines.append("bar.sync 0;")
            self.store()
        return "\n".join((*HEAD, *(f"    {line}" for line in self.lines), *self.tail()))

    def tail(self) -> list[str]:
        out = ["mul.lo.s32 %t0, %global, 8;", "mul.wide.u32 %a, %t0, 4;", "add.s64 %a, %out, %a;", "$END:"]
        lines = [f"    st.global.b32 [%a+{4 * k}], %i{k};" for k in range(4)]
        # Which NaN an operation gives is not defined; all are stored as one.
        for k in range(4):
            lines += [f"    setp.nan.f32 %p0, %x{k}, %x{k};", f"    selp.f32 %x{k}, 0f7FC00000, %x{k}, %p0;"]
            lines += [f"    st.global.f32 [%a+{16 + 4 * k}], %x{k};"]
        return [*(f"    {line}" for line in out[:3]), *lines, "$END:", "    ret;", "}"]


HEAD = """.version 7.0
.target sm_70
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{
    .reg .pred %p<4>, %q<4>;
    .reg .b32 %i<8>, %t<4>, %n<4>, %flat, %global, %size;
    .reg .f32 %x<6>;
    .reg .b64 %in, %out, %a, %b;
    .shared .align 4 .b8 words[4096];
    ld.param.u64 %in, [in];
    ld.param.u64 %out, [out];
    mov.u32 %t0, %tid.z;
    mov.u32 %t1, %ntid.y;
    mov.u32 %t2, %tid.y;
    mad.lo.s32 %t0, %t0, %t1, %t2;
    mov.u32 %t1, %ntid.x;
    mov.u32 %t2, %tid.x;
    mad.lo.s32 %flat, %t0, %t1, %t2;
    mov.u32 %t3, %ntid.y;
    mul.lo.s32 %size, %t1, %t3;
    mov.u32 %t3, %ntid.z;
    mul.lo.s32 %size, %size, %t3;
    mov.u32 %t3, %ctaid.x;
    mad.lo.s32 %global, %t3, %size, %flat;
    mov.u32 %i0, %flat;
    mov.u32 %i1, %tid.x;
    mov.u32 %i2, %ctaid.x;
    mov.u32 %i3, 12345;
    mul.lo.s32 %i4, %global, 1664525;
    mov.u32 %i5, %tid.y;
    mov.u32 %i6, -3;
    xor.b32 %i7, %i4, 61;
    cvt.rn.f32.s32 %x0, %i0;
    mov.f32 %x1, 0f3F9E0652;
    cvt.rn.f32.s32 %x2, %i4;
    mov.f32 %x3, 0f00000100;
    mov.f32 %x4, 0fBF000000;
    mov.f32 %x5, %x0;
    setp.lt.s32 %p0, %i0, 11;
    setp.ne.s32 %p1, %i2, 1;
    setp.gt.s32 %p2, %i4, 0;
    setp.eq.s32 %p3, %i1, 2;""".splitlines()


def main(count: int, seed: int) -> None:
    start()
    words = np.random.default_rng(seed).integers(-(2**31), 2**31, WORDS, dtype=np.int64).astype(np.int32)
    source = Buffer(words)
    for number in range(count):
        chance = random.Random(seed * 100_003 + number)
        block = chance.choice(BLOCKS)
        threads = math.prod(block)
        module = Module(Writer(chance, block).text())
        out = Buffer(np.zeros(3 * threads * 8, np.int32))
        launch(module.kernel("k"), (3,), block, source, out)
        found = out.read()
        check(driver.cuModuleUnload(module.handle))
        out.free()
        print(json.dumps({"kernel": number, "digest": hashlib.sha256(found.tobytes()).hexdigest()}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 7)
