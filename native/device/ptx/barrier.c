/* Barriers of a block: threads arrive, wait, and leave together; bar.red gives them a result. */
#include "device/ptx/scratch.h"

/* a: number of the barrier; b: threads that take part, or 0 for all; c: predicate of bar.red; d: its result. */
void step_barrier(struct warp *w, const struct insn *in, uint32_t m)
{
    uint32_t first = (uint32_t)__builtin_ctz(m);
    uint32_t id = REG(uint32_t, in->a)[first];
    if (id >= BARRIERS) {
        run_fault(w, CUDA_ERROR_ILLEGAL_INSTRUCTION);
        return;
    }
    struct barrier *barrier = &w->run->barriers[id];
    uint32_t yes = in->c ? PRED(in->c) & m : 0;
    if (barrier->arrived == 0)
        barrier->count = barrier->any = 0, barrier->all = 1;
    barrier->arrived += (uint32_t)__builtin_popcount(m);
    barrier->expected = in->b ? REG(uint32_t, in->b)[first] : 0;
    barrier->count += (uint32_t)__builtin_popcount(yes);
    barrier->any |= yes != 0;
    barrier->all &= yes == m;
    if (in->mode == BARRIER_ARRIVE)
        return;
    run_park(w, w->pc, m, FRAGMENT_AT_BARRIER);
    w->fragments[w->fragment_count - 1].barrier = (uint8_t)id;
}

static void give_result(struct warp *w, const struct insn *in, const struct barrier *barrier, uint32_t mask)
{
    if (in->mode == BARRIER_COUNT) {
        uint32_t count = barrier->count;
        EACH(mask, REG(uint32_t, in->d)[l] = count);
    } else if (in->mode == BARRIER_ALL) {
        set_predicate(w, in->d, mask, barrier->all ? ALL_LANES : 0);
    } else if (in->mode == BARRIER_ANY) {
        set_predicate(w, in->d, mask, barrier->any ? ALL_LANES : 0);
    }
}

static void release(struct run *run, struct warp *w, uint32_t id)
{
    for (uint32_t i = 0; i < w->fragment_count; i++) {
        struct fragment *at = &w->fragments[i];
        if (at->state != FRAGMENT_AT_BARRIER || at->barrier != id)
            continue;
        give_result(w, &run->code->insns[at->pc - 1], &run->barriers[id], at->mask);
        at->state = FRAGMENT_READY;
    }
}

/* Opens every barrier at which all have arrived. Threads that have ended are not waited for. */
bool barrier_release(struct run *run, struct warp *warps, uint32_t count)
{
    bool any = false;
    for (uint32_t id = 0; id < BARRIERS; id++) {
        struct barrier *barrier = &run->barriers[id];
        uint32_t expected = barrier->expected ? barrier->expected : run->live;
        if (!barrier->arrived || barrier->arrived < expected)
            continue;
        for (uint32_t i = 0; i < count; i++)
            release(run, &warps[i], id);
        barrier->arrived = 0;
        any = true;
    }
    return any;
}
