/* Fuzz target: PTX text against the loader and the interpreter, with limits so small that every input ends at once.
 *
 * The input is the text. Each of its kernels runs once; its parameters are addresses of one small block. All memory is
 * laid out so that AddressSanitizer sees a step beyond it. When the module has gone, nothing of it may be left.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/compile/compile.h"
#include "script.h"

/* With 5 ms for kernels that do not end, 1,500 inputs ran in a second; with 0.5 ms 4,000 (20 s from the seeds). */
enum { BLOCKS_MOST = 64, BLOCK_BYTES = 512, KERNELS_MOST = 4, KERNEL_NS = 500000 };

struct block {
    char *at;
    size_t bytes;
};
struct owner {
    struct block blocks[BLOCKS_MOST];
    size_t count;
};

/* The interpreter is under test: nothing is compiled. */
bool compile_run(const struct ptx_kernel *kernel, const struct ptx_launch *launch, CUresult *result)
{
    (void)kernel, (void)launch, (void)result;
    return false;
}

void compile_interpreted(const struct ptx_kernel *kernel, uint64_t ns)
{
    (void)kernel, (void)ns;
}

void compile_forget(const struct ptx_code *code)
{
    (void)code;
}

static uint64_t place(void *who, size_t bytes)
{
    struct owner *owner = who;
    if (bytes == 0 || bytes > 1 << 20 || owner->count == BLOCKS_MOST)
        return 0;
    char *at = calloc(1, bytes);
    must_hold(at != NULL);
    owner->blocks[owner->count++] = (struct block){at, bytes};
    return (uint64_t)(uintptr_t)at;
}

static void give_back(void *who, uint64_t address)
{
    struct owner *owner = who;
    for (size_t i = 0; i < owner->count; i++)
        if ((uint64_t)(uintptr_t)owner->blocks[i].at == address) {
            free(owner->blocks[i].at);
            owner->blocks[i] = owner->blocks[--owner->count];
            return;
        }
    must_hold(!"it gives back what it has");
}

static bool find(void *who, uint64_t address, size_t bytes, bool write, uint64_t *from, uint64_t *to)
{
    const struct owner *owner = who;
    (void)write;
    for (size_t i = 0; i < owner->count; i++) {
        uint64_t base = (uint64_t)(uintptr_t)owner->blocks[i].at;
        if (address < base || address - base > owner->blocks[i].bytes ||
            bytes > owner->blocks[i].bytes - (address - base))
            continue;
        *from = base;
        *to = base + owner->blocks[i].bytes;
        return true;
    }
    return false;
}

/* Addresses of the block everywhere, with a small number now and then for sizes. */
static void fill(uint64_t block, uint8_t *parameters, size_t bytes)
{
    for (size_t at = 0; at + 4 <= bytes; at += 4) {
        uint32_t part = (uint32_t)(at % 8 ? block >> 32 : block);
        memcpy(parameters + at, &part, 4);
    }
    if (bytes % 8 == 4)
        memcpy(parameters + bytes - 4, &(uint32_t){7}, 4);
}

static void run_kernel(const struct ptx_kernel *kernel, const struct ptx_memory *memory, uint64_t block)
{
    uint8_t *parameters = calloc(1, kernel->parameter_bytes ? kernel->parameter_bytes : 1);
    struct ptx_scratch *scratch = ptx_scratch_open();
    must_hold(parameters != NULL && scratch != NULL);
    fill(block, parameters, kernel->parameter_bytes);
    struct ptx_launch launch = {.grid = {2, 1, 1},
                                .block = {kernel->threads_max < 40 ? kernel->threads_max : 40, 1, 1},
                                .dynamic_shared_bytes = 64,
                                .parameters = parameters,
                                .memory = memory,
                                .timeout_ns = KERNEL_NS};
    ptx_run(kernel, &launch, scratch);
    ptx_scratch_close(scratch);
    free(parameters);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct owner owner = {.count = 0};
    struct ptx_memory memory = {.who = &owner, .place = place, .give_back = give_back, .find = find};
    struct ptx_bounds bounds = {.bytes_most = 4 << 20, .timeout_ns = 1000000000};
    struct ptx_log log = {{0}};
    struct ptx_module *module;
    char *text = malloc(count + 1);
    must_hold(text != NULL);
    memcpy(text, bytes, count);
    text[count] = 0;
    CUresult result = ptx_load(text, &memory, &bounds, &module, &log);
    free(text); /* a module that still read it would be caught */
    must_hold(memchr(log.text, 0, sizeof log.text) != NULL);
    if (result != CUDA_SUCCESS) {
        must_hold(log.text[0] != 0 || result == CUDA_ERROR_OUT_OF_MEMORY);
        must_hold(owner.count == 0);
        return 0;
    }
    must_hold(ptx_bytes(module) <= bounds.bytes_most + 4096);
    const struct ptx_kernel *kernels;
    size_t kernel_count = ptx_kernels(module, &kernels);
    uint64_t block = place(&owner, BLOCK_BYTES);
    for (size_t i = 0; i < kernel_count && i < KERNELS_MOST; i++)
        run_kernel(&kernels[i], &memory, block);
    give_back(&owner, block);
    ptx_unload(module);
    must_hold(owner.count == 0);
    return 0;
}
