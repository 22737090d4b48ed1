/* Instructions across the lanes of a warp: they run when all lanes that they name have come to them. */
#include <string.h>

#include "device/ptx/inner.h"

/* Gives the lanes of `m` that can go on now, all with the member mask `members`; parks those who must wait.
 * `members_at`: the register with the member masks. Returns 0 when no group is complete. */
uint32_t warp_gather(struct warp *w, uint32_t *m, uint32_t members_at, uint32_t *members)
{
    while (*m) {
        uint32_t first = (uint32_t)__builtin_ctz(*m), group = 0;
        *members = REG(uint32_t, members_at)[first];
        for (uint32_t left = *m; left; left &= left - 1) {
            uint32_t l = (uint32_t)__builtin_ctz(left);
            if (REG(uint32_t, members_at)[l] == *members)
                group |= 1u << l;
        }
        *m &= ~group;
        uint32_t missing = *members & w->born & ~w->exited & ~group;
        if (!missing || w->forced)
            return group;
        run_park(w, w->pc - 1, group, FRAGMENT_GATHERS);
    }
    return 0;
}

static uint32_t source_lane(uint32_t lane, uint32_t b, uint32_t c, int kind, bool *good)
{
    uint32_t clamp = c & 31, segment = (c >> 8) & 31;
    uint32_t most = (lane & segment) | (clamp & ~segment), least = lane & segment;
    uint32_t from;
    b &= 31;
    switch (kind) {
    case SHUFFLE_UP:
        from = lane - b;
        *good = (int32_t)from >= (int32_t)most;
        break;
    case SHUFFLE_DOWN:
        from = lane + b;
        *good = from <= most;
        break;
    case SHUFFLE_BFLY:
        from = lane ^ b;
        *good = from <= most;
        break;
    default:
        from = least | (b & ~segment);
        *good = from <= most;
    }
    return *good ? from & 31 : lane;
}

/* d = a of another lane; e: predicate "from a lane in range" or 0; the member mask is in the register `immediate`. */
void step_shuffle(struct warp *w, const struct insn *in, uint32_t m)
{
    uint32_t members, group, values[LANES];
    memcpy(values, REG(uint32_t, in->a), sizeof values);
    while ((group = warp_gather(w, &m, (uint32_t)in->immediate, &members))) {
        const uint32_t *b = REG(uint32_t, in->b), *c = REG(uint32_t, in->c);
        uint32_t in_range = 0, taken[LANES];
        for (uint32_t left = group; left; left &= left - 1) {
            uint32_t l = (uint32_t)__builtin_ctz(left);
            bool good;
            taken[l] = values[source_lane(l, b[l], c[l], in->mode, &good)];
            in_range |= (uint32_t)good << l;
        }
        EACH(group, REG(uint32_t, in->d)[l] = taken[l]);
        if (in->e)
            set_predicate(w, in->e, group, in_range);
    }
    w->forced = false;
}

/* d: predicate, or the ballot; a: predicate; the member mask is in b. */
void step_vote(struct warp *w, const struct insn *in, uint32_t m)
{
    uint32_t members, group;
    while ((group = warp_gather(w, &m, in->b, &members))) {
        uint32_t yes = PRED(in->a) & group;
        if (in->mode == VOTE_BALLOT) {
            EACH(group, REG(uint32_t, in->d)[l] = yes);
            continue;
        }
        bool all = yes == group, any = yes != 0;
        bool result = in->mode == VOTE_ALL ? all : in->mode == VOTE_ANY ? any : all || !any;
        set_predicate(w, in->d, group, result ? ALL_LANES : 0);
    }
    w->forced = false;
}

/* match.any (mode 0) and match.all (mode 1): lanes with the same value in a; from_bytes wide; member mask in b. */
void step_match(struct warp *w, const struct insn *in, uint32_t m)
{
    uint32_t members, group;
    while ((group = warp_gather(w, &m, in->b, &members))) {
        uint32_t same[LANES] = {0};
        bool all = true;
        for (uint32_t i = 0; i < LANES; i++)
            for (uint32_t j = 0; j < LANES; j++) {
                if (!((group >> i) & (group >> j) & 1))
                    continue;
                bool equal = in->from_bytes == 8 ? REG(uint64_t, in->a)[i] == REG(uint64_t, in->a)[j]
                                                 : REG(uint32_t, in->a)[i] == REG(uint32_t, in->a)[j];
                same[i] |= (uint32_t)equal << j;
                all = all && equal;
            }
        EACH(group, REG(uint32_t, in->d)[l] = in->mode ? (all ? group : 0) : same[l]);
        if (in->e)
            set_predicate(w, in->e, group, all ? ALL_LANES : 0);
    }
    w->forced = false;
}

static uint32_t reduced(uint32_t x, uint32_t y, int kind)
{
    switch (kind) {
    case REDUCE_ADD:
        return x + y;
    case REDUCE_MIN_U:
        return x < y ? x : y;
    case REDUCE_MAX_U:
        return x > y ? x : y;
    case REDUCE_MIN_S:
        return (int32_t)x < (int32_t)y ? x : y;
    case REDUCE_MAX_S:
        return (int32_t)x > (int32_t)y ? x : y;
    case REDUCE_AND:
        return x & y;
    case REDUCE_OR:
        return x | y;
    default:
        return x ^ y;
    }
}

void step_reduce(struct warp *w, const struct insn *in, uint32_t m)
{
    uint32_t members, group;
    while ((group = warp_gather(w, &m, in->b, &members))) {
        const uint32_t *a = REG(uint32_t, in->a);
        uint32_t result = a[__builtin_ctz(group)];
        for (uint32_t left = group & (group - 1); left; left &= left - 1)
            result = reduced(result, a[__builtin_ctz(left)], in->mode);
        EACH(group, REG(uint32_t, in->d)[l] = result);
    }
    w->forced = false;
}

void step_warp_barrier(struct warp *w, const struct insn *in, uint32_t m)
{
    uint32_t members;
    while (warp_gather(w, &m, in->a, &members))
        continue;
    w->forced = false;
}

/* elect.sync d|e: the lowest lane of the group is elected. */
void step_elect(struct warp *w, const struct insn *in, uint32_t m)
{
    uint32_t members, group;
    while ((group = warp_gather(w, &m, in->a, &members))) {
        uint32_t leader = (uint32_t)__builtin_ctz(group);
        EACH(group, REG(uint32_t, in->d)[l] = leader);
        set_predicate(w, in->e, group, 1u << leader);
    }
    w->forced = false;
}

void step_active_mask(struct warp *w, const struct insn *in, uint32_t m)
{
    uint32_t active = w->active;
    EACH(m, REG(uint32_t, in->d)[l] = active);
}

static const struct op_row ROWS[] = {
    {"activemask.b32", step_active_mask, "4", 0},
    {"redux.sync.add.u32", step_reduce, "444", REDUCE_ADD},
    {"redux.sync.add.s32", step_reduce, "444", REDUCE_ADD},
    {"redux.sync.min.u32", step_reduce, "444", REDUCE_MIN_U},
    {"redux.sync.max.u32", step_reduce, "444", REDUCE_MAX_U},
    {"redux.sync.min.s32", step_reduce, "444", REDUCE_MIN_S},
    {"redux.sync.max.s32", step_reduce, "444", REDUCE_MAX_S},
    {"redux.sync.and.b32", step_reduce, "444", REDUCE_AND},
    {"redux.sync.or.b32", step_reduce, "444", REDUCE_OR},
    {"redux.sync.xor.b32", step_reduce, "444", REDUCE_XOR},
    {"match.any.sync.b32", step_match, "444", 0},
};
const struct op_table OPS_WARP = {ROWS, sizeof ROWS / sizeof *ROWS};
