/* The tables behind cuGetExportTable that the CUDA runtime and the libraries on it ask for, and refuse to start without.
 *
 * A table is a list of functions; its first place holds its size in bytes. The places that no program was seen to call
 * answer "not supported". docs/cuda-runtime.md lists who asks for what.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/front.h"
#include "driver/runtime.h"

bool runtime_asked_for(void)
{
    const char *text = getenv("GPUTAX_CUDA_RUNTIME");
    return text != NULL && strcmp(text, "1") == 0;
}

typedef const void *slot; /* a function; as data, because the first place of a table is a number */

#define FUNCTION(name) ((slot)(uintptr_t)(name))
#define SIZE(count) ((slot)((count) * sizeof(slot)))

static CUresult not_supported(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult nothing_to_do(void)
{
    return CUDA_SUCCESS;
}

/* --- the runtime's own table --- */

static const slot runtime_table[13] = {
    [0] = SIZE(13),
    [1] = FUNCTION(not_supported), /* modules out of fat binaries: runtimes since 12.0 use cuLibraryLoadData */
    [2] = FUNCTION(primary_handle),
    [3 ... 6] = FUNCTION(not_supported),
    [7] = FUNCTION(nothing_to_do),
    [8 ... 11] = FUNCTION(not_supported),
    [12] = FUNCTION(nothing_to_do), /* since 13.1: get ready to compile */
};

/* --- the self-test --- */

static CUresult self_test(uint32_t version, uint64_t seconds, uint64_t answer[2]);

static const slot self_test_table[3] = {
    [0] = SIZE(3),
    [1] = FUNCTION(self_test),
    [2] = FUNCTION(not_supported),
};

static CUresult self_test(uint32_t version, uint64_t seconds, uint64_t answer[2])
{
    const struct self_test_places places = {runtime_table, self_test_table, FUNCTION(self_test)};
    return self_test_answer(version, seconds, &places, answer);
}

/* --- values with a context: without a size in front --- */

static const slot storage_table[4] = {
    FUNCTION(storage_put),
    FUNCTION(storage_delete),
    FUNCTION(storage_get),
    FUNCTION(not_supported),
};

/* --- tools: nobody listens --- */

static CUresult give_buffer(void **to, size_t *bytes, uint8_t *buffer, size_t buffer_bytes)
{
    if (to == NULL || bytes == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *to = buffer;
    *bytes = buffer_bytes;
    return CUDA_SUCCESS;
}

/* A word for each function of the runtime, at the function's own number, read without a look at the size: 13.4 was seen to
 * read at 1944 of what once were 1024 bytes. */
static CUresult runtime_subscriptions(void **to, size_t *bytes)
{
    static uint8_t none[64 << 10];
    return give_buffer(to, bytes, none, sizeof none);
}

static CUresult tool_subscriptions(void **to, size_t *bytes)
{
    static uint8_t none[4 << 10];
    return give_buffer(to, bytes, none, 14);
}

static const slot tool_hooks_table[7] = {
    [0] = SIZE(7),
    [1] = FUNCTION(nothing_to_do),
    [2] = FUNCTION(runtime_subscriptions),
    [3] = FUNCTION(not_supported),
    [4] = FUNCTION(nothing_to_do),
    [5] = FUNCTION(not_supported),
    [6] = FUNCTION(tool_subscriptions),
};

static CUresult thread_context(CUcontext *context)
{
    return cuCtxGetCurrent(context);
}

static const slot tool_thread_table[4] = {
    [0] = SIZE(4),
    [1] = FUNCTION(not_supported),
    [2] = FUNCTION(thread_context),
    [3] = FUNCTION(not_supported),
};

static CUresult context_number(CUcontext context, uint64_t *number)
{
    unsigned long long id = 0;
    if (number == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cuCtxGetId(context, &id);
    *number = id;
    return result;
}

static CUresult number_of_stream(CUcontext context, CUstream stream, uint64_t *number)
{
    CUresult result = context_number(context, number);
    if (result == CUDA_SUCCESS)
        *number = stream_number(*number, stream);
    return result;
}

static CUresult no_number(void *first, void *second, uint64_t *number)
{
    (void)first, (void)second;
    if (number == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *number = 0;
    return CUDA_SUCCESS;
}

static const slot tool_numbers_table[64] = {
    [0] = SIZE(64),
    [1 ... 3] = FUNCTION(not_supported),
    [4] = FUNCTION(context_number),
    [5 ... 38] = FUNCTION(not_supported),
    [39] = FUNCTION(no_number),
    [40 ... 50] = FUNCTION(not_supported),
    [51] = FUNCTION(number_of_stream),
    [52 ... 63] = FUNCTION(not_supported),
};

/* --- checks of a context, which has nothing that would forbid anything --- */

static CUresult context_check(CUcontext context, uint32_t *forbidden, const void **more)
{
    (void)context, (void)more;
    if (forbidden == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *forbidden = 0;
    return CUDA_SUCCESS;
}

static const slot context_checks_table[4] = {
    [0] = SIZE(4),
    [1] = FUNCTION(not_supported),
    [2] = FUNCTION(context_check),
    [3] = FUNCTION(nothing_to_do),
};

/* cuBLASLt calls into it without a look at whether it is there. */
static const slot compiler_table[16] = {
    [0] = SIZE(16),
    [1 ... 15] = FUNCTION(not_supported),
};

static const struct {
    uint8_t id[16];
    const slot *table;
} tables[] = {
    {{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9}, runtime_table},
    {{0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2}, self_test_table},
    {{0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93}, storage_table},
    {{0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a, 0x66},
     tool_hooks_table},
    {{0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc},
     tool_thread_table},
    {{0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8, 0xf2},
     tool_numbers_table},
    {{0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa, 0x7e},
     context_checks_table},
    {{0x17, 0x34, 0xdc, 0x26, 0x80, 0x0d, 0x47, 0x45, 0x87, 0x26, 0xc0, 0xf1, 0xe7, 0xdd, 0x8b, 0xca}, compiler_table},
};

/* Without the operator's word there are none, and a runtime gives up at its first call. */
CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    if (table == NULL || id == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *table = NULL;
    if (!runtime_asked_for())
        return CUDA_ERROR_NOT_FOUND;
    for (size_t at = 0; at < sizeof tables / sizeof tables[0]; at++)
        if (memcmp(tables[at].id, id->bytes, sizeof tables[at].id) == 0) {
            *table = tables[at].table;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_SUPPORTED;
}

__attribute__((visibility("default"))) int gputax_runtime_report(char *json, size_t capacity);

/* The evidence: whether the runtime's tables were on offer, and whether one made use of them. */
int gputax_runtime_report(char *json, size_t capacity)
{
    return snprintf(json, capacity, "{\"asked_for\": %s, \"self_tests_answered\": %u}",
                    runtime_asked_for() ? "true" : "false", self_tests_answered());
}
