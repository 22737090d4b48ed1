/* Mutations of PTX text by token and by statement, with a dictionary that comes from the interpreter's own tables. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "device/ptx/inner.h"
#include "script.h"

enum { TOKENS_MOST = 8192, WORD_MOST = 200 };

struct piece {
    uint32_t at, length;
};

static uint64_t state;

static size_t below(size_t limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return limit == 0 ? 0 : (size_t)((state * UINT64_C(0x2545f4914f6cdd1d)) >> 20) % limit;
}

static const char *const WORDS[] = {"{",
                                    "}",
                                    "(",
                                    ")",
                                    "[",
                                    "]",
                                    ",",
                                    ";",
                                    ":",
                                    "!",
                                    "|",
                                    "-",
                                    "+",
                                    "=",
                                    "@",
                                    "<",
                                    ">",
                                    "_",
                                    "@%p1",
                                    "@!%p1",
                                    ".reg",
                                    ".b8",
                                    ".b16",
                                    ".b32",
                                    ".b64",
                                    ".f16",
                                    ".f16x2",
                                    ".bf16",
                                    ".f32",
                                    ".f64",
                                    ".pred",
                                    ".u8",
                                    ".s8",
                                    ".u16",
                                    ".local",
                                    ".shared",
                                    ".global",
                                    ".const",
                                    ".param",
                                    ".extern",
                                    ".visible",
                                    ".entry",
                                    ".func",
                                    ".align 8",
                                    ".align 256",
                                    ".branchtargets",
                                    ".callprototype",
                                    ".maxntid",
                                    ".pragma \"x\"",
                                    ".loc 1 2 3\n",
                                    "%tid.x",
                                    "%ctaid.x",
                                    "%laneid",
                                    "%clock64",
                                    "%dynamic_smem_size",
                                    "%p1",
                                    "%rs1",
                                    "%r1",
                                    "%r2",
                                    "%f1",
                                    "%rd1",
                                    "%rd2",
                                    "%fd1",
                                    "0",
                                    "1",
                                    "-1",
                                    "31",
                                    "32",
                                    "255",
                                    "65535",
                                    "4294967295",
                                    "0xffffffffffffffff",
                                    "9223372036854775808",
                                    "0f7F800000",
                                    "0d7FF0000000000000",
                                    "WARP_SZ",
                                    "x",
                                    "x[1]",
                                    "[x]",
                                    "[x+4]",
                                    "[%rd1]",
                                    "[%rd1+4]",
                                    "[%rd1+-4]",
                                    "[%r1]",
                                    "[0]",
                                    "L",
                                    "L:",
                                    "T",
                                    "generic(x)"};
static const char *const STATEMENTS[] = {
    ".global .align 8 .b8 x[64];",
    ".shared .align 8 .b32 x[16];",
    ".extern .shared .b8 x[];",
    ".local .b64 x[4];",
    ".reg .b32 %r<9>;",
    ".reg .pred %p<9>;",
    ".reg .b64 %rd<9>;",
    ".reg .f32 %f<9>;",
    ".reg .b16 %rs<9>;",
    ".reg .f64 %fd<9>;",
    "L:",
    "bra L;",
    "@%p1 bra L;",
    "T: .branchtargets L, L;",
    "brx.idx %r1, T;",
    "ret;",
    "exit;",
    "trap;",
    "bar.sync 0;",
    "bar.sync %r1, 32;",
    "bar.arrive 1, 64;",
    "bar.red.popc.u32 %r1, 0, %p1;",
    "barrier.sync.aligned %r1;",
    "bar.warp.sync %r1;",
    "{ .param .b32 x; st.param.b32 [x], %r1; call f, (x); }",
    "call (x), f, (x);",
    "mov.u64 %rd1, x;",
    "mov.u64 %rd1, x[1];",
    "mov.b64 {%r1, %r2}, %rd1;",
    "mov.b64 %rd1, {%r1, %r2};",
    "mov.b32 %r1, {%rs1, %rs2};",
    "ld.global.u32 %r1, [%rd1];",
    "st.global.u32 [%rd1], %r1;",
    "ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [x];",
    "ld.param.u64 %rd1, [a];",
    "ld.param.u32 %r1, [a+4];",
    "ld.local.u8 %r1, [%rd1+3];",
    "ld.v2.f32 {%f1, _}, [%rd1];",
    "st.shared.v2.b64 [%r1], {%rd1, %rd2};",
    "atom.global.add.u32 %r1, [%rd1], %r2;",
    "atom.shared.cas.b32 %r1, [x], %r2, %r3;",
    "red.global.max.s32 [%rd1], %r1;",
    "cvta.to.global.u64 %rd1, %rd2;",
    "cvta.shared.u64 %rd1, %rd2;",
    "isspacep.local %p1, %rd1;",
    "shfl.sync.bfly.b32 %r1|%p1, %r2, 1, 31, -1;",
    "vote.sync.ballot.b32 %r1, %p1, %r2;",
    "match.all.sync.b64 %r1|%p1, %rd1, %r2;",
    "elect.sync %r1|%p1, %r2;",
    "activemask.b32 %r1;",
    "setp.lt.and.s32 %p1|%p2, %r1, %r2, !%p3;",
    "set.eq.f32.s32 %f1, %r1, %r2;",
    "cvt.rzi.s32.f32 %r1, %f1;",
    "cvt.sat.u8.s64 %rs1, %rd1;",
    "cvt.rn.f16.f32 %rs1, %f1;",
    "cvt.f64.f16 %fd1, %rs1;",
    "mov.u32 %r1, %tid.x;",
    "mov.u32 %r1, %clock;",
    "nanosleep.u32 %r1;",
    "membar.gl;",
    "prefetch.global.L2 [%rd1];",
    "cp.async.ca.shared.global [%r1], [%rd1], 16;",
    "cp.async.cg.shared.global [%r1], [%rd1], 16, %r2;",
    "cp.async.wait_all;",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, "
    "{%f1,%f2,%f3,%f4};",
    "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, "
    "{%r1,%r2,%r3,%r4};",
    "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%rd1], %r1;",
    "wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [x], {%f1,%f2,%f3,%f4,%f5,%f6,%f7,%f8}, 16;",
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1,%r2,%r3,%r4}, [%r5];"};
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* A statement for a row of the instruction tables, with registers of the right sizes. */
static void row_statement(char *text, size_t room)
{
    const struct op_table *const all[] = {&OPS_INTEGER, &OPS_BITS, &OPS_FLOAT, &OPS_COMPARE, &OPS_WARP, &OPS_HALF};
    const struct op_table *table = all[below(COUNT(all))];
    const struct op_row *row = &table->rows[below(table->count)];
    size_t used = (size_t)snprintf(text, room, "%s ", row->name);
    for (const char *shape = row->shape; *shape && used < room; shape++) {
        const char *kind = *shape == '1'   ? "%p"
                           : *shape == '2' ? "%rs"
                           : *shape == '8' ? "%rd"
                           : *shape == 'f' ? "%f"
                           : *shape == 'd' ? "%fd"
                                           : "%r";
        const char *comma = shape == row->shape ? "" : ", ";
        if (*shape == 'i' || (shape != row->shape && below(6) == 0))
            used += (size_t)snprintf(text + used, room - used, "%s%zu", comma, below(300));
        else if (*shape != 'K')
            used += (size_t)snprintf(text + used, room - used, "%s%s%zu", comma, kind, 1 + below(8));
    }
    if (used < room)
        snprintf(text + used, room - used, ";");
}

static void new_word(char *text, size_t room)
{
    size_t how = below(8);
    if (how < 3)
        snprintf(text, room, "%s", WORDS[below(COUNT(WORDS))]);
    else if (how == 3)
        snprintf(text, room, "%zu", (size_t)1 << below(40));
    else if (how == 4)
        snprintf(text, room, "%s", STATEMENTS[below(COUNT(STATEMENTS))]);
    else if (how == 5)
        snprintf(text, room, "%c%zu", "%frpd"[below(5)], below(12));
    else
        row_statement(text, room);
}

static size_t split(const uint8_t *text, size_t count, struct piece *pieces)
{
    size_t found = 0;
    for (size_t at = 0; at < count && found < TOKENS_MOST;) {
        size_t end = at + 1;
        if (isspace(text[at])) {
            at = end;
            continue;
        }
        while (end < count && (isalnum(text[at]) || strchr("_$%.", text[at])) && text[end] != 0 &&
               (isalnum(text[end]) || strchr("_$%.:", text[end])))
            end++;
        pieces[found++] = (struct piece){(uint32_t)at, (uint32_t)(end - at)};
        at = end;
    }
    return found;
}

/* Replaces `length` bytes at `at` by `with`. */
static size_t put(uint8_t *text, size_t count, size_t most, size_t at, size_t length, const char *with,
                  size_t with_bytes)
{
    if (count - length + with_bytes > most)
        return count;
    memmove(text + at + with_bytes, text + at + length, count - at - length);
    memcpy(text + at, with, with_bytes);
    return count - length + with_bytes;
}

/* The statement around a piece: from behind a `;` to the next one. */
static struct piece statement_at(const uint8_t *text, size_t count, size_t at)
{
    size_t from = at, to = at;
    while (from > 0 && text[from - 1] != ';' && text[from - 1] != '{' && text[from - 1] != '}')
        from--;
    while (to < count && text[to] != ';')
        to++;
    to += to < count;
    return (struct piece){(uint32_t)from, (uint32_t)(to - from)};
}

static size_t change(uint8_t *text, size_t count, size_t most)
{
    static struct piece pieces[TOKENS_MOST];
    char word[WORD_MOST + 2] = " ";
    size_t found = split(text, count, pieces);
    if (found == 0)
        return count;
    struct piece one = pieces[below(found)], other = pieces[below(found)];
    struct piece statement = statement_at(text, count, one.at);
    switch (below(9)) {
    case 0: /* another token of this text in its place */
    case 1: {
        size_t length = other.length < WORD_MOST ? other.length : WORD_MOST;
        memcpy(word, text + other.at, length);
        return put(text, count, most, one.at, one.length, word, length);
    }
    case 2: /* a new word in its place */
    case 3:
        new_word(word, WORD_MOST);
        return put(text, count, most, one.at, one.length, word, strlen(word));
    case 4: /* without it */
        return put(text, count, most, one.at, one.length, "", 0);
    case 5: /* a new word, or statement, before a statement */
    case 6:
        word[0] = '\n';
        (below(3) ? row_statement : new_word)(word + 1, WORD_MOST);
        return put(text, count, most, statement.at, 0, word, strlen(word));
    case 7: /* without the statement */
        return put(text, count, most, statement.at, statement.length, "", 0);
    default: { /* the statement once more, elsewhere */
        char copy[1024];
        size_t length = statement.length < sizeof copy ? statement.length : sizeof copy;
        memcpy(copy, text + statement.at, length);
        return put(text, count, most, statement_at(text, count, other.at).at, 0, copy, length);
    }
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *text, size_t count, size_t most, unsigned int seed)
{
    state = seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
    for (size_t rounds = (size_t)1 << below(4); rounds > 0; rounds--)
        count = change(text, count, most);
    return count;
}
