/* Fuzz target: bytes of a tenant against the reader of binary images. What it gives back must hold: names end, parameters lie
 * within the kernel's, variables within memory that it asked for; and when the image has gone, nothing of it may be left. */
#include "device/cubin.h"

#include <stdlib.h>
#include <string.h>

#include "script.h"

enum { BLOCKS_MOST = 256, BYTES_MOST = 4 << 20 };

struct owner {
    char *at[BLOCKS_MOST];
    size_t bytes[BLOCKS_MOST];
    size_t count;
};

static volatile char read_byte;

static uint64_t place(void *who, size_t bytes)
{
    struct owner *owner = who;
    if (bytes == 0 || bytes > 1 << 20 || owner->count == BLOCKS_MOST)
        return 0;
    char *at = calloc(1, bytes);
    must_hold(at != NULL);
    owner->at[owner->count] = at;
    owner->bytes[owner->count++] = bytes;
    return (uint64_t)(uintptr_t)at;
}

static void give_back(void *who, uint64_t address)
{
    struct owner *owner = who;
    for (size_t i = 0; i < owner->count; i++)
        if ((uint64_t)(uintptr_t)owner->at[i] == address) {
            free(owner->at[i]);
            owner->at[i] = owner->at[--owner->count];
            owner->bytes[i] = owner->bytes[owner->count];
            return;
        }
    must_hold(!"it gives back what it has");
}

static void check_kernel(const struct ptx_kernel *kernel)
{
    uint32_t end = 0;
    must_hold(kernel->name != NULL && strlen(kernel->name) < 1 << 15);
    must_hold(kernel->threads_max > 0 && kernel->threads_max <= 1024);
    for (uint32_t i = 0; i < kernel->parameter_count; i++) {
        const struct ptx_parameter *one = &kernel->parameters[i];
        must_hold(one->bytes > 0 && one->offset + one->bytes <= kernel->parameter_bytes);
        end = one->offset + one->bytes > end ? one->offset + one->bytes : end;
    }
    must_hold(end == kernel->parameter_bytes && end <= PTX_PARAMETER_BYTES);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct owner owner = {.count = 0};
    struct ptx_memory memory = {.who = &owner, .place = place, .give_back = give_back};
    struct ptx_log log = {{0}};
    struct cubin *cubin;
    uint8_t *image = malloc(count ? count : 1); /* just as long, so that a step beyond it is seen */
    must_hold(image != NULL);
    memcpy(image, bytes, count);
    CUresult result = cubin_load(image, count, &memory, BYTES_MOST, &cubin, &log);
    free(image); /* an image that were still read would be caught */
    must_hold(memchr(log.text, 0, sizeof log.text) != NULL);
    if (result != CUDA_SUCCESS) {
        must_hold(log.text[0] != 0 && owner.count == 0);
        return 0;
    }
    must_hold(cubin_bytes(cubin) <= BYTES_MOST + 4096);
    const struct ptx_kernel *kernels;
    size_t kernel_count = cubin_kernels(cubin, &kernels);
    for (size_t i = 0; i < kernel_count; i++)
        check_kernel(&kernels[i]);
    const struct ptx_variable *table = cubin_variable_named(cubin, "table");
    for (size_t at = 0; table != NULL && at < table->bytes; at++)
        read_byte = ((const char *)(uintptr_t)table->address)[at]; /* AddressSanitizer sees one that is not there */
    cubin_unload(cubin);
    must_hold(owner.count == 0);
    return 0;
}
