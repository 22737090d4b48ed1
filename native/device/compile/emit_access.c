/* Loads and stores: one check for a gang whose addresses are the same or evenly spaced, thread by thread otherwise. */
#include "device/compile/emit.h"

#include <string.h>

struct place access_place(const struct emitter *e, const struct item *item)
{
    const struct insn *in = item->in;
    struct place p = {.address = &e->plan->names[item->sources[0]], .element = item->element, .count = in->count};
    p.wide = form_type_bytes(item->form->types[0]);
    p.whole = p.element * p.count;
    p.shared = in->space == SPACE_SHARED;
    p.global = in->space == SPACE_GLOBAL;
    /* Addresses of 32 bits wrap; with an offset that is not negative a footprint in shared memory shows that none did. */
    bool wraps = in->narrow && (!p.shared || in->immediate < 0 || in->immediate > INT32_MAX);
    int64_t stride = p.address->stride;
    p.even = (p.shared || p.global) && p.address->class != CLASS_GENERAL && stride >= 0 && stride < (1 << 28) &&
             stride % p.whole == 0 && !(wraps && stride);
    p.footprint = p.even ? 7 * (uint64_t)stride : 0;
    return p;
}

static void table_of(struct emitter *e, const struct item *item, const struct place *p)
{
    const struct plan *plan = e->plan;
    bool is_signed = item->form->types[1][0] == 'i';
    say(&e->functions,
        "static const struct access A%u = {%u, %u, %u, %u, %u, %lluull, %d, %d, %lluull, %lluull, %lluull, %d, "
        "%lluull};\n",
        e->access_count, item->in->cache, item->in->space, p->element, p->count, p->wide,
        (unsigned long long)p->footprint, item->kind == KIND_STORE, is_signed, (unsigned long long)plan->shared_bytes,
        (unsigned long long)plan->kernel->local_bytes, (unsigned long long)plan->kernel->parameter_bytes,
        item->in->narrow, (unsigned long long)item->in->immediate);
}

/* All addresses, as a vector of 64 bits. */
static const char *addresses(struct emitter *e, const struct item *item)
{
    const char *base = vector_of(e, item->sources[0]);
    long long offset = (long long)item->in->immediate;
    if (item->in->narrow)
        return word(e, "(zero_extended(%s) + (uint64_t)%lldll)", base, offset);
    return word(e, "(%s + (uint64_t)%lldll)", base, offset);
}

/* A call that loads or stores thread by thread, with the addresses as what they are. */
static void call_each(struct emitter *e, const struct item *item)
{
    const char *verb = item->kind == KIND_LOAD ? "load" : "store";
    const struct name *address = &e->plan->names[item->sources[0]];
    if (address->class == CLASS_EVEN)
        say(&e->body, "if (%s_even(c, &A%u, %s, (uint64_t)%lldll, bits(k), x))\ngoto FAIL;\n", verb, e->access_count,
            scalar_of(e, item->sources[0]), (long long)address->stride);
    else
        say(&e->body, "if (%s_each(c, &A%u, %s, bits(k), x))\ngoto FAIL;\n", verb, e->access_count, addresses(e, item));
}

static void each(struct emitter *e, const struct item *item, const struct place *p)
{
    if (item->kind == KIND_LOAD) {
        say(&e->body, "w%u x[%u];\n", p->wide, p->count);
        call_each(e, item);
        for (uint32_t i = 0; i < p->count; i++)
            put_vector(e, item, i, word(e, "x[%u]", i));
        return;
    }
    say(&e->body, "w%u x[%u];\n", p->wide, p->count);
    for (uint32_t i = 0; i < p->count; i++)
        say(&e->body, "x[%u] = %s;\n", i, vector_of(e, item->sources[i + 1]));
    call_each(e, item);
}

/* Element i of all threads from or to `t`, an array whose thread l lies at `place` (a C expression of l). */
static void move_lanes(struct emitter *e, const struct item *item, const struct place *p, const char *place)
{
    const char *memory = item->form->types[1], *wide = item->form->types[0];
    if (item->kind == KIND_LOAD && p->count > 1 && p->element == 4 && p->wide == 4) {
        say(&e->body, "w4 t[%u];\nTURN%u(t, (const char *)(%s));\n", p->count, p->count, place);
        for (uint32_t i = 0; i < p->count; i++)
            put_vector(e, item, i, word(e, "t[%u]", i));
        return;
    }
    for (uint32_t i = 0; i < p->count; i++) {
        unsigned bytes = e->plan->names[item->kind == KIND_LOAD ? item->made[i] : item->sources[i + 1]].bytes;
        bool solid = p->address->stride == p->element && p->element == bytes && p->even && p->count == 1;
        say(&e->body, "{\n");
        if (item->kind == KIND_LOAD) {
            if (solid)
                say(&e->body, "w%u w;\n__builtin_memcpy(&w, at, sizeof w);\n", bytes);
            else
                say(&e->body, "w%u w = LANES(%s, %s, (const char *)(%s) + %u);\n", bytes, memory, wide, place,
                    i * p->element);
            put_vector(e, item, i, "w");
        } else {
            say(&e->body, "w%u w = %s;\n", bytes, vector_of(e, item->sources[i + 1]));
            if (solid)
                say(&e->body, "__builtin_memcpy(at, &w, sizeof w);\n");
            else
                say(&e->body,
                    "%s d[8];\n__builtin_memcpy(d, &w, sizeof w);\nfor (int l = 0; l < 8; l++) {\n%s t = (%s)d[l];\n"
                    "__builtin_memcpy((char *)(%s) + %u, &t, sizeof t);\n}\n",
                    wide, memory, memory, place, i * p->element);
        }
        say(&e->body, "}\n");
    }
}

static void move_one(struct emitter *e, const struct item *item, const struct place *p)
{
    const char *memory = item->form->types[1], *wide = item->form->types[0];
    for (uint32_t i = 0; i < p->count; i++) {
        if (item->kind == KIND_LOAD) {
            say(&e->body, "{\n%s t;\n__builtin_memcpy(&t, at + %u, sizeof t);\n%s s = (%s)(%s)t;\n", memory,
                i * p->element, scalar_type(e->plan->names[item->made[i]].bytes),
                scalar_type(e->plan->names[item->made[i]].bytes), wide);
            put_scalar(e, item, i, "s", 0);
        } else {
            say(&e->body, "{\n%s t = (%s)%s;\n__builtin_memcpy(at + %u, &t, sizeof t);\n", memory, memory,
                scalar_of(e, item->sources[i + 1]), i * p->element);
        }
        say(&e->body, "}\n");
    }
}

/* Where the checks of a whole block have failed: no way around the closer look, which keeps the text short. */
static void unsure_access(struct emitter *e, const struct item *item, const struct place *p)
{
    if (p->address->stride == 0 && p->address->class == CLASS_EVEN) { /* one thread's fault is everybody's */
        say(&e->body, "char *at = place_of(c, &A%u, a);\nif (!at)\ngoto FAIL;\n", e->access_count);
        move_one(e, item, p);
    } else {
        each(e, item, p);
    }
}

/* Whether all values are the same for all threads: then a store to one address is one store. */
static bool same_values(const struct emitter *e, const struct item *item)
{
    for (uint32_t k = 1; k < item->source_count; k++)
        if (!is_same(&e->plan->names[item->sources[k]]))
            return false;
    return true;
}

/* Whether the last thread's value stays at one address: then a store goes thread by thread. */
static bool overwrites(const struct emitter *e, const struct item *item, const struct place *p)
{
    bool one = p->even && p->address->stride == 0;
    return one && (p->address->class != CLASS_EVEN || (item->kind == KIND_STORE && !same_values(e, item)));
}

bool access_is_sure(const struct emitter *e, const struct item *item)
{
    struct place p = access_place(e, item);
    return p.even && !overwrites(e, item, &p) &&
           (item->kind == KIND_LOAD || p.address->stride == 0 || takes_all(e, item));
}

static void even_access(struct emitter *e, const struct item *item, const struct place *p)
{
    const char *scalar = scalar_of(e, item->sources[0]);
    uint64_t needs = p->whole + p->footprint;
    bool one = p->address->stride == 0;
    struct covered covered = e->covered[item - e->plan->items];
    bool sure = e->sure && covered.cover;
    struct turned turned = e->turned[item - e->plan->items];
    if (sure && turned.row) {
        put_vector(e, item, 0, word(e, "t%u[%u]", turned.row, turned.word));
        return;
    }
    if (sure)
        say(&e->body, "uint64_t a = g%u + (uint64_t)%lldll;\n", covered.cover, (long long)covered.offset);
    else
        say(&e->body, "uint64_t a = (uint64_t)%s + (uint64_t)%lldll;\n", scalar, (long long)item->in->immediate);
    if (sure) {
        say(&e->body, "char *at = %s;\n", p->global ? "(char *)(uintptr_t)a" : "S + a");
        if (one)
            move_one(e, item, p);
        else
            move_lanes(e, item, p, word(e, "at + l * %lldll", (long long)p->address->stride));
        return;
    }
    if (e->unsure && covered.cover) {
        unsure_access(e, item, p);
        return;
    }
    say(&e->body, "if (LIKELY(");
    if (p->address->class == CLASS_MAYBE)
        say(&e->body, "o%u && ", item->sources[0]);
    if (item->kind == KIND_STORE && !one && !takes_all(e, item))
        say(&e->body, "bits(k) == 255 && ");
    if (p->whole > 1)
        say(&e->body, "!(a & %u) && ", p->whole - 1);
    if (p->global)
        say(&e->body, "reached(c, &R[%u], &A%u, a)", item->in->cache, e->access_count);
    else if (e->plan->shared_bytes >= needs)
        say(&e->body, "a <= %lluull", (unsigned long long)(e->plan->shared_bytes - needs));
    else
        say(&e->body, "0");
    say(&e->body, ")) {\nchar *at = %s;\n", p->global ? "(char *)(uintptr_t)a" : "S + a");
    if (one)
        move_one(e, item, p);
    else
        move_lanes(e, item, p, word(e, "at + l * %lldll", (long long)p->address->stride));
    say(&e->body, "} else {\n");
    unsure_access(e, item, p);
    say(&e->body, "}\n");
}

static void general_access(struct emitter *e, const struct item *item, const struct place *p)
{
    bool known = (p->shared || p->global);
    if (known) {
        say(&e->body, "w8 g = %s;\nif (", addresses(e, item));
        if (item->kind == KIND_STORE && !takes_all(e, item))
            say(&e->body, "bits(k) == 255 && ");
        if (p->global)
            say(&e->body, "gathered(&R[%u], g, %u)) {\n", item->in->cache, p->whole);
        else
            say(&e->body, "gathered_in(%lluull, g, %u)) {\n", (unsigned long long)e->plan->shared_bytes, p->whole);
        say(&e->body, "uint64_t a[8];\n__builtin_memcpy(a, &g, sizeof a);\n");
        move_lanes(e, item, p, p->global ? "(char *)(uintptr_t)a[l]" : "S + a[l]");
        say(&e->body, "} else {\n");
    }
    each(e, item, p);
    if (known)
        say(&e->body, "}\n");
}

void emit_access(struct emitter *e, const struct item *item)
{
    struct place p = access_place(e, item);
    p.even = p.even && !overwrites(e, item, &p);
    bool uniform = item->kind == KIND_LOAD && is_same(p.address) && item->in->space == SPACE_PARAM;
    table_of(e, item, &p);
    if (p.even) {
        even_access(e, item, &p);
    } else if (uniform) {
        say(&e->body, "uint64_t a = (uint64_t)%s + (uint64_t)%lldll;\n", scalar_of(e, item->sources[0]),
            (long long)item->in->immediate);
        say(&e->body, "w%u x[%u];\nif (load_each(c, &A%u, spread8(a, 0), 1, x))\ngoto FAIL;\n", p.wide, p.count,
            e->access_count);
        for (uint32_t i = 0; i < p.count; i++)
            put_scalar(e, item, i, word(e, "(%s)x[%u][0]", scalar_type(e->plan->names[item->made[i]].bytes), i), 0);
    } else {
        general_access(e, item, &p);
    }
    e->access_count++;
}
