/* The executor: warps of a block take turns, lanes of a warp run together and part and join where they branch.
 *
 * Lanes that are at the same instruction form a fragment. Of several fragments the one that is furthest behind runs, so
 * that lanes which parted at a branch meet again behind it; now and then another one gets its turn, so that lanes which
 * wait for one another in a loop get on.
 */
#include <stdlib.h>
#include <string.h>

#include "device/compile/compile.h"
#include "device/ptx/scratch.h"

enum { FUEL = 4096, FUEL_TOGETHER = 64 }; /* backward branches of a warp's turn; where blocks wait for one another */
enum { WATCH = 4096 }; /* instructions between looks at the clock: code without branches takes time, too */

void run_fault(struct warp *w, CUresult fault)
{
    if (w->run->fault == CUDA_SUCCESS)
        w->run->fault = fault;
    w->event |= EVENT_FAULT;
}

static void add_fragment(struct warp *w, struct fragment fresh)
{
    if (fresh.state == FRAGMENT_READY)
        for (uint32_t i = 0; i < w->fragment_count; i++) {
            struct fragment *other = &w->fragments[i];
            if (other->pc == fresh.pc && other->state != FRAGMENT_AT_BARRIER) {
                other->mask |= fresh.mask;
                other->state = FRAGMENT_READY; /* those who gather look again */
                return;
            }
        }
    w->fragments[w->fragment_count++] = fresh; /* fragments are disjoint and not empty: at most 32 */
}

void run_park(struct warp *w, uint32_t pc, uint32_t mask, enum fragment_state state)
{
    w->active &= ~mask;
    add_fragment(w, (struct fragment){.pc = pc, .mask = mask, .state = (uint8_t)state});
    w->event |= EVENT_PICK;
}

static struct fragment *furthest_behind(struct warp *w, enum fragment_state state)
{
    struct fragment *best = NULL;
    for (uint32_t i = 0; i < w->fragment_count; i++) {
        struct fragment *at = &w->fragments[i];
        if (at->state == state && (!best || at->pc < best->pc))
            best = at;
    }
    return best;
}

/* Puts the running fragment back and makes another one run. False: all lanes have ended or wait at a barrier. */
static bool pick(struct warp *w, bool other)
{
    struct fragment *next = NULL;
    if (w->active) {
        uint32_t before = w->fragment_count;
        add_fragment(w, (struct fragment){.pc = w->pc, .mask = w->active, .state = FRAGMENT_READY});
        if (other && w->fragment_count > before && before > 0) { /* hide it for one choice */
            w->fragments[before].state = FRAGMENT_AT_BARRIER;
            next = furthest_behind(w, FRAGMENT_READY);
            w->fragments[before].state = FRAGMENT_READY;
        }
        w->active = 0;
    }
    if (!next)
        next = furthest_behind(w, FRAGMENT_READY);
    if (!next && (next = furthest_behind(w, FRAGMENT_GATHERS)))
        w->forced = true;
    if (!next)
        return false;
    w->pc = next->pc;
    w->active = next->mask;
    *next = w->fragments[--w->fragment_count];
    w->stop = UINT32_MAX;
    for (uint32_t i = 0; i < w->fragment_count; i++) {
        const struct fragment *at = &w->fragments[i];
        if (at->state != FRAGMENT_AT_BARRIER && at->pc > w->pc && at->pc < w->stop)
            w->stop = at->pc;
    }
    return true;
}

static void count_backward(struct warp *w, uint32_t target)
{
    if (target < w->pc && --w->run->fuel == 0) {
        w->run->fuel = w->run->turn;
        w->event |= EVENT_YIELD;
    }
}

static void jump(struct warp *w, uint32_t target, uint32_t m)
{
    if (__builtin_expect(target >= w->run->code->insn_count,
                         0)) { /* the loader has checked it: never go by that alone */
        run_fault(w, CUDA_ERROR_INVALID_PC);
        return;
    }
    count_backward(w, target);
    if (m == w->active) {
        w->pc = target;
        if (w->fragment_count)
            w->event |= EVENT_PICK;
    } else {
        run_park(w, target, m, FRAGMENT_READY);
    }
}

void step_branch(struct warp *w, const struct insn *in, uint32_t m)
{
    jump(w, (uint32_t)in->immediate, m);
}

/* brx.idx: a is the index; `immediate` where its targets begin, e how many there are. */
void step_branch_indexed(struct warp *w, const struct insn *in, uint32_t m)
{
    const struct ptx_code *code = w->run->code;
    const uint32_t *index = REG(uint32_t, in->a);
    while (m) {
        uint32_t chosen = index[__builtin_ctz(m)], group = 0;
        for (uint32_t left = m; left; left &= left - 1) {
            uint32_t l = (uint32_t)__builtin_ctz(left);
            group |= (uint32_t)(index[l] == chosen) << l;
        }
        uint64_t at = (uint64_t)in->immediate + chosen;
        if (chosen >= in->e || at >= code->jump_count) {
            run_fault(w, CUDA_ERROR_INVALID_PC);
            return;
        }
        jump(w, code->jumps[at], group);
        m &= ~group;
    }
}

void step_exit(struct warp *w, const struct insn *in, uint32_t m)
{
    (void)in;
    w->exited |= m;
    w->active &= ~m;
    w->run->live -= (uint32_t)__builtin_popcount(m);
    if (!w->active || w->fragment_count)
        w->event |= EVENT_PICK;
}

void step_trap(struct warp *w, const struct insn *in, uint32_t m)
{
    (void)in, (void)m;
    run_fault(w, CUDA_ERROR_LAUNCH_FAILED);
}

void step_clock(struct warp *w, const struct insn *in, uint32_t m)
{
    uint64_t now = now_ns(); /* a clock of 1 GHz */
    if (in->mode == CLOCK_TICKS)
        EACH(m, REG(uint32_t, in->d)[l] = (uint32_t)now);
    else if (in->mode == CLOCK_HIGH)
        EACH(m, REG(uint32_t, in->d)[l] = (uint32_t)(now >> 32));
    else
        EACH(m, REG(uint64_t, in->d)[l] = now);
}

/* Runs the warp until it ends, waits or has had its turn. True: it can go on later without anybody's doing. */
static bool run_warp(struct warp *w)
{
    struct run *run = w->run;
    const struct insn *code = run->code->insns;
    if (!w->active && !pick(w, false))
        return false;
    for (;;) {
        if (w->pc == w->stop)
            pick(w, false);
        const struct insn *in = &code[w->pc++];
        uint32_t mask = w->active;
        if (in->guard) {
            uint32_t predicate = PRED(in->guard);
            mask &= in->guard_not ? ~predicate : predicate;
            if (!mask)
                continue;
        }
        in->run(w, in, mask);
        if (__builtin_expect(--run->watch == 0, 0)) {
            run->watch = WATCH;
            if (now_ns() > run->deadline_ns)
                run_fault(w, CUDA_ERROR_LAUNCH_TIMEOUT);
        }
        if (__builtin_expect(w->event == 0, 1))
            continue;
        uint32_t event = w->event;
        w->event = 0;
        if (event & EVENT_FAULT)
            return false;
        if (event & EVENT_YIELD) {
            if (now_ns() > w->run->deadline_ns)
                run_fault(w, CUDA_ERROR_LAUNCH_TIMEOUT);
            return pick(w, true) && w->run->fault == CUDA_SUCCESS;
        }
        if (!pick(w, false))
            return false;
    }
}

static void begin_warp(struct run *run, struct warp *w, uint32_t index, uint32_t place, uint32_t threads)
{
    uint32_t left = threads - index * LANES;
    w->run = run;
    w->index = index;
    w->place = place;
    w->born = w->active = left >= LANES ? ALL_LANES : (1u << left) - 1;
    w->exited = w->event = w->fragment_count = w->pc = 0;
    w->stop = UINT32_MAX;
    w->forced = false;
    w->file = NULL;
}

/* A block that runs: its warps, and what the run holds for the block that has its turn. */
struct block {
    struct warp *warps;
    uint32_t warp_count, ended;
    uint32_t at[3];
};

static void begin_block(struct run *run, struct block *block, uint32_t threads, uint32_t place)
{
    run->live = threads;
    memset(run->barriers, 0, sizeof run->barriers);
    block->ended = 0;
    for (uint32_t i = 0; i < block->warp_count; i++)
        begin_warp(run, &block->warps[i], i, place + i, threads);
}

/* Each warp of the block has one turn. False: none could go on. */
static bool turn_block(struct run *run, struct ptx_scratch *scratch, struct block *block)
{
    bool moved = false;
    for (uint32_t i = 0; i < block->warp_count && run->fault == CUDA_SUCCESS; i++) {
        struct warp *w = &block->warps[i];
        if (w->exited == w->born)
            continue;
        if (!w->file && !scratch_take(scratch, run, w, block->at)) {
            run->fault = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
            break;
        }
        if (!w->active && !furthest_behind(w, FRAGMENT_READY) && !furthest_behind(w, FRAGMENT_GATHERS))
            continue;
        moved = true;
        run_warp(w);
        if (w->exited == w->born) {
            block->ended++;
            scratch_give(scratch, w);
        }
    }
    if (run->fault == CUDA_SUCCESS)
        moved = barrier_release(run, block->warps, block->warp_count) || moved;
    return moved;
}

static void give_back(struct ptx_scratch *scratch, struct block *block)
{
    for (uint32_t i = 0; i < block->warp_count; i++)
        if (block->warps[i].file)
            scratch_give(scratch, &block->warps[i]);
}

/* Runs the block's warps in turn until all have ended. */
static void run_block(struct run *run, struct ptx_scratch *scratch, uint32_t threads, const uint32_t *at)
{
    struct block block = {.warps = scratch->warps, .warp_count = (threads + LANES - 1) / LANES};
    memcpy(block.at, at, sizeof block.at);
    begin_block(run, &block, threads, 0);
    while (block.ended < block.warp_count) {
        bool moved = turn_block(run, scratch, &block);
        if (!moved && run->fault == CUDA_SUCCESS)
            run->fault = CUDA_ERROR_LAUNCH_TIMEOUT; /* threads wait for one another at barriers, without end */
        if (run->fault != CUDA_SUCCESS) {
            give_back(scratch, &block);
            return;
        }
    }
}

/* What the run holds for a block while another one has its turn. */
struct parked {
    struct block block;
    uint32_t live;
    struct barrier barriers[BARRIERS];
};

static void turn_all(struct run *run, struct ptx_scratch *scratch, struct parked *all, uint32_t count)
{
    char *shared = run->shared;
    uint32_t ended = 0;
    bool moved = true;
    while (ended < count && run->fault == CUDA_SUCCESS) {
        if (!moved)
            run->fault = CUDA_ERROR_LAUNCH_TIMEOUT;
        moved = false;
        for (uint32_t i = 0; i < count && run->fault == CUDA_SUCCESS; i++) {
            struct parked *one = &all[i];
            if (one->block.ended == one->block.warp_count)
                continue;
            run->shared = shared + i * scratch_shared_stride(run);
            run->live = one->live;
            memcpy(run->barriers, one->barriers, sizeof run->barriers);
            moved = turn_block(run, scratch, &one->block) || moved;
            memcpy(one->barriers, run->barriers, sizeof run->barriers);
            one->live = run->live;
            ended += one->block.ended == one->block.warp_count;
        }
        if (now_ns() > run->deadline_ns && run->fault == CUDA_SUCCESS)
            run->fault = CUDA_ERROR_LAUNCH_TIMEOUT;
    }
    for (uint32_t i = 0; i < count && run->fault != CUDA_SUCCESS; i++)
        give_back(scratch, &all[i].block);
}

/* A cooperative launch: every block has its turns until all have ended. The caller has bounded their number. The workspace
 * is as NVIDIA's cooperative groups read it: its size, then the counter of the grid's barrier. */
static CUresult interpret_together(struct run *run, struct ptx_scratch *scratch, uint32_t threads)
{
    const uint32_t *grid = run->launch->grid;
    uint32_t count = grid[0] * grid[1] * grid[2], warps = (threads + LANES - 1) / LANES;
    const struct ptx_memory *memory = run->launch->memory;
    const uint32_t workspace_bytes = 8;
    struct parked *all = calloc(count, sizeof *all);
    run->workspace = memory->place(memory->who, workspace_bytes);
    run->fault = !all || !run->workspace ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
                                         : scratch_prepare(scratch, run, warps * count, count);
    if (run->fault == CUDA_SUCCESS) {
        memcpy((void *)(uintptr_t)run->workspace, &workspace_bytes, sizeof workspace_bytes);
        run->turn = run->fuel = FUEL_TOGETHER;
        for (uint32_t i = 0; i < count; i++) {
            struct block *block = &all[i].block;
            *block = (struct block){.warps = scratch->warps + (size_t)i * warps, .warp_count = warps};
            block->at[0] = i % grid[0];
            block->at[1] = i / grid[0] % grid[1];
            block->at[2] = i / grid[0] / grid[1];
            begin_block(run, block, threads, i * warps);
            all[i].live = threads;
        }
        turn_all(run, scratch, all, count);
    }
    if (run->workspace)
        memory->give_back(memory->who, run->workspace);
    free(all);
    return run->fault;
}

static CUresult interpret(const struct ptx_kernel *kernel, const struct ptx_launch *launch, struct ptx_scratch *scratch)
{
    uint32_t threads = launch->block[0] * launch->block[1] * launch->block[2];
    struct run run = {
        .code = kernel->code,
        .launch = launch,
        .kernel = kernel,
        .parameters = launch->parameters,
        .parameter_bytes = kernel->parameter_bytes,
        .shared_bytes = kernel->shared_bytes + (uint64_t)launch->dynamic_shared_bytes,
        .local_bytes = kernel->local_bytes,
        .deadline_ns = now_ns() + launch->timeout_ns,
        .turn = FUEL,
        .fuel = FUEL,
        .watch = WATCH,
        .fault = CUDA_SUCCESS,
        .output = &scratch->output,
    };
    if (launch->is_cooperative)
        return interpret_together(&run, scratch, threads);
    CUresult prepared = scratch_prepare(scratch, &run, (threads + LANES - 1) / LANES, 1);
    if (prepared != CUDA_SUCCESS)
        return prepared;
    uint32_t at[3];
    uint64_t blocks = 0;
    for (at[2] = 0; at[2] < launch->grid[2]; at[2]++)
        for (at[1] = 0; at[1] < launch->grid[1]; at[1]++)
            for (at[0] = 0; at[0] < launch->grid[0]; at[0]++) {
                run_block(&run, scratch, threads, at);
                if (run.fault != CUDA_SUCCESS)
                    return run.fault;
                if ((++blocks & 1023) == 0 && now_ns() > run.deadline_ns)
                    return CUDA_ERROR_LAUNCH_TIMEOUT;
            }
    return CUDA_SUCCESS;
}

CUresult ptx_run(const struct ptx_kernel *kernel, const struct ptx_launch *launch, struct ptx_scratch *scratch)
{
    CUresult result;
    if (!launch->is_cooperative && compile_run(kernel, launch, &result)) /* compiled blocks have no turns */
        return result;
    uint64_t began = now_ns();
    result = interpret(kernel, launch, scratch);
    scratch_settle(scratch);
    compile_interpreted(kernel, now_ns() - began);
    return result;
}
