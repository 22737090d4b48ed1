/* The scratch memory of launches, and the filling of constants and special registers. */
#include "device/ptx/scratch.h"

#include <stdlib.h>
#include <string.h>

#include "device/meter.h"

struct ptx_scratch *ptx_scratch_open(void)
{
    return calloc(1, sizeof(struct ptx_scratch));
}

static void drop_files(struct ptx_scratch *scratch)
{
    while (scratch->files) {
        struct register_file *file = scratch->files;
        scratch->files = file->next;
        free(file->registers);
        free(file);
        scratch->file_count--;
    }
}

void ptx_scratch_forget(struct ptx_scratch *scratch)
{
    for (struct register_file *file = scratch->files; file; file = file->next)
        file->code = NULL;
}

/* Grows a zeroed buffer; old contents are of no interest. */
static bool at_least(char **buffer, size_t *have, size_t wanted)
{
    if (*have >= wanted)
        return true;
    free(*buffer);
    *buffer = calloc(1, wanted);
    *have = *buffer ? wanted : 0;
    return *buffer != NULL;
}

static size_t file_room(uint32_t bytes)
{
    return ((size_t)bytes + 63) / 64 * 64;
}

static uint64_t files_bytes(uint64_t count, uint32_t bytes)
{
    return count * (file_room(bytes) + sizeof(struct register_file));
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* What is there. */
static uint64_t held_bytes(const struct ptx_scratch *scratch)
{
    return scratch->warp_count * sizeof *scratch->warps + scratch->cache_count * sizeof *scratch->caches +
           scratch->shared_bytes + scratch->local_bytes + files_bytes(scratch->file_count, scratch->file_bytes);
}

/* What is there when the launch has got all that it can want: buffers only grow, files of another size go first. */
static uint64_t needed_bytes(const struct ptx_scratch *scratch, const struct run *run, uint32_t warps, uint32_t blocks)
{
    const struct ptx_code *code = run->code;
    bool files_fit = scratch->file_bytes >= code->register_bytes;
    uint64_t files = files_fit ? files_bytes(most(scratch->file_count, warps), scratch->file_bytes)
                               : files_bytes(warps, code->register_bytes);
    return most(scratch->warp_count, warps) * sizeof *scratch->warps +
           most(scratch->cache_count, code->cache_count) * sizeof *scratch->caches +
           most(scratch->shared_bytes, scratch_shared_stride(run) * blocks) +
           most(scratch->local_bytes, run->local_bytes * LANES * warps) + files;
}

/* No launch runs, so no file is in use. */
static void drop_buffers(struct ptx_scratch *scratch)
{
    drop_files(scratch);
    free(scratch->warps);
    free(scratch->shared);
    free(scratch->local);
    free(scratch->caches);
    scratch->warps = NULL;
    scratch->shared = scratch->local = NULL;
    scratch->caches = NULL;
    scratch->warp_count = scratch->cache_count = scratch->file_bytes = 0;
    scratch->shared_bytes = scratch->local_bytes = 0;
}

void ptx_scratch_close(struct ptx_scratch *scratch)
{
    if (!scratch)
        return;
    ptx_output_drain(scratch);
    free(scratch->output.text);
    drop_buffers(scratch);
    meter_give_back(scratch->metered_bytes);
    free(scratch);
}

static bool meter_up_to(struct ptx_scratch *scratch, uint64_t bytes)
{
    if (bytes > scratch->metered_bytes && !meter_take(bytes - scratch->metered_bytes))
        return false;
    scratch->metered_bytes = most(scratch->metered_bytes, bytes);
    return true;
}

void scratch_settle(struct ptx_scratch *scratch)
{
    uint64_t held = held_bytes(scratch);
    meter_give_back(scratch->metered_bytes - held);
    scratch->metered_bytes = held;
}

/* What earlier launches left may be of no use to this one: it goes before the launch is refused. */
static bool meter_launch(struct ptx_scratch *scratch, const struct run *run, uint32_t warps, uint32_t blocks)
{
    if (meter_up_to(scratch, needed_bytes(scratch, run, warps, blocks)))
        return true;
    drop_buffers(scratch);
    scratch_settle(scratch);
    return meter_up_to(scratch, needed_bytes(scratch, run, warps, blocks));
}

static bool grow(struct ptx_scratch *scratch, const struct run *run, uint32_t warps, uint32_t blocks)
{
    const struct ptx_code *code = run->code;
    if (scratch->warp_count < warps) {
        free(scratch->warps);
        scratch->warps = calloc(warps, sizeof *scratch->warps);
        scratch->warp_count = scratch->warps ? warps : 0;
        if (!scratch->warps)
            return false;
    }
    if (scratch->cache_count < code->cache_count) {
        free(scratch->caches);
        scratch->caches = calloc(code->cache_count, sizeof *scratch->caches);
        scratch->cache_count = scratch->caches ? code->cache_count : 0;
        if (!scratch->caches)
            return false;
    }
    return at_least(&scratch->shared, &scratch->shared_bytes, scratch_shared_stride(run) * blocks) &&
           at_least(&scratch->local, &scratch->local_bytes, run->local_bytes * LANES * warps);
}

CUresult scratch_prepare(struct ptx_scratch *scratch, struct run *run, uint32_t warps, uint32_t blocks)
{
    const struct ptx_code *code = run->code;
    if (!meter_launch(scratch, run, warps, blocks))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (scratch->file_bytes < code->register_bytes) {
        drop_files(scratch);
        scratch->file_bytes = code->register_bytes;
    }
    if (!grow(scratch, run, warps, blocks)) {
        scratch_settle(scratch);
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    }
    /* Memory may have been freed or given to another context since the last launch. */
    if (code->cache_count)
        memset(scratch->caches, 0, code->cache_count * sizeof *scratch->caches);
    run->caches = scratch->caches;
    run->shared = scratch->shared;
    scratch->launch++;
    return CUDA_SUCCESS;
}

static struct register_file *new_file(uint32_t bytes)
{
    struct register_file *file = calloc(1, sizeof *file);
    size_t rounded = file_room(bytes);
    if (file && !(file->registers = aligned_alloc(64, rounded))) {
        free(file);
        return NULL;
    }
    if (file)
        memset(file->registers, 0, rounded);
    return file;
}

static void fill_constants(struct register_file *file, const struct ptx_code *code)
{
    for (uint32_t i = 0; i < code->constant_count; i++) {
        const struct constant *constant = &code->constants[i];
        char *at = file->registers + constant->at;
        for (uint32_t l = 0; l < LANES && constant->bytes; l++)
            memcpy(at + l * constant->bytes, &constant->value, constant->bytes);
        if (!constant->bytes)
            memcpy(at, &constant->value, 4);
    }
}

static void broadcast(char *registers, uint32_t at, uint32_t value)
{
    if (at)
        for (uint32_t l = 0; l < LANES; l++)
            ((uint32_t *)(void *)(registers + at))[l] = value;
}

static void fill_thread_indices(const struct run *run, char *registers, uint32_t warp)
{
    const uint32_t *at = run->code->specials, *block = run->launch->block;
    uint32_t thread = warp * LANES;
    uint32_t x = thread % block[0], y = thread / block[0] % block[1], z = thread / block[0] / block[1];
    for (uint32_t l = 0; l < LANES; l++) {
        const uint32_t values[3] = {x, y, z};
        for (int i = 0; i < 3; i++)
            if (at[SPECIAL_TID_X + i])
                ((uint32_t *)(void *)(registers + at[SPECIAL_TID_X + i]))[l] = values[i];
        if (++x == block[0]) {
            x = 0;
            if (++y == block[1]) {
                y = 0;
                z++;
            }
        }
    }
}

static void fill_lanes(const struct run *run, char *registers, uint32_t warp)
{
    const uint32_t *at = run->code->specials;
    broadcast(registers, at[SPECIAL_WARPID], warp);
    for (uint32_t l = 0; l < LANES; l++) {
        uint32_t bit = 1u << l;
        const uint32_t values[] = {[SPECIAL_LANEID] = l,
                                   [SPECIAL_LANEMASK_EQ] = bit,
                                   [SPECIAL_LANEMASK_LT] = bit - 1,
                                   [SPECIAL_LANEMASK_LE] = bit | (bit - 1),
                                   [SPECIAL_LANEMASK_GT] = ~(bit | (bit - 1)),
                                   [SPECIAL_LANEMASK_GE] = ~(bit - 1)};
        for (int i = SPECIAL_LANEID; i < SPECIAL_PER_LAUNCH; i++)
            if (at[i] && i != SPECIAL_WARPID)
                ((uint32_t *)(void *)(registers + at[i]))[l] = values[i];
    }
}

static void fill_launch(const struct run *run, char *registers)
{
    const uint32_t *at = run->code->specials;
    const struct ptx_launch *launch = run->launch;
    uint32_t warps = (launch->block[0] * launch->block[1] * launch->block[2] + LANES - 1) / LANES;
    for (int i = 0; i < 3; i++) {
        broadcast(registers, at[SPECIAL_NTID_X + i], launch->block[i]);
        broadcast(registers, at[SPECIAL_NCTAID_X + i], launch->grid[i]);
    }
    broadcast(registers, at[SPECIAL_NWARPID], warps);
    broadcast(registers, at[SPECIAL_SMID], 0);
    broadcast(registers, at[SPECIAL_NSMID], 1);
    broadcast(registers, at[SPECIAL_DYNAMIC_SMEM_SIZE], launch->dynamic_shared_bytes);
    broadcast(registers, at[SPECIAL_TOTAL_SMEM_SIZE], (uint32_t)run->shared_bytes);
    broadcast(registers, at[SPECIAL_ENVREG1], (uint32_t)(run->workspace >> 32)); /* as cooperative groups read it */
    broadcast(registers, at[SPECIAL_ENVREG2], (uint32_t)run->workspace);
}

/* Gives the warp a register file in which all that it may read without writing is in place. */
bool scratch_take(struct ptx_scratch *scratch, struct run *run, struct warp *w, const uint32_t *block)
{
    struct register_file *file = scratch->files;
    if (file)
        scratch->files = file->next;
    else if (!(file = new_file(scratch->file_bytes)))
        return false;
    else
        scratch->file_count++;
    bool fresh = file->code != run->code;
    if (fresh)
        fill_constants(file, run->code);
    if (fresh || file->launch != scratch->launch)
        fill_launch(run, file->registers);
    if (fresh || file->launch != scratch->launch || file->warp != w->index) {
        fill_thread_indices(run, file->registers, w->index);
        fill_lanes(run, file->registers, w->index);
    }
    for (int i = 0; i < 3; i++)
        if (fresh || file->launch != scratch->launch || file->block[i] != block[i]) {
            broadcast(file->registers, run->code->specials[SPECIAL_CTAID_X + i], block[i]);
            file->block[i] = block[i];
        }
    file->code = run->code;
    file->launch = scratch->launch;
    file->warp = w->index;
    w->file = file;
    w->registers = file->registers;
    w->local = scratch->local ? scratch->local + (size_t)w->place * LANES * run->local_bytes : NULL;
    return true;
}

void scratch_give(struct ptx_scratch *scratch, struct warp *w)
{
    w->file->next = scratch->files;
    scratch->files = w->file;
    w->file = NULL;
}
