/* Fuzz target: libraries, their kernels, and the tables of the CUDA runtime, as a script of calls on the software device.
 *
 * Handles are those that earlier calls gave, also after they ended, and absurd ones. Values that are kept with a context are
 * held against a list of their own, destructors that call back included; in the end nothing is left on the device.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda_calls.h"
#include "script.h"

enum { CALLS_MOST = 64, KNOWN_MOST = 16, KEYS = 4, CONTEXTS_MOST = 3 };

static const char text[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                           ".visible .global .align 4 .u32 cell = 7;\n"
                           ".visible .entry put(.param .u64 p, .param .u32 v)\n{\n"
                           ".reg .b64 %rd<3>;\n.reg .b32 %r<3>;\n"
                           "ld.param.u64 %rd1, [p];\nld.param.u32 %r1, [v];\nst.global.u32 [%rd1], %r1;\nret;\n}\n";
static const char broken[] = ".version 8.0\n.target sm_80\n.address_size 64\n.entry put() { nonsense; }\n";
static const char *const names[] = {"put", "cell", "", "no_such_name", "put.cell"};
static const uint8_t tables[][16] = {
    {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9},
    {0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2},
    {0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93},
    {0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a, 0x66},
    {0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc},
    {0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8, 0xf2},
    {0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa, 0x7e},
};
enum { RUNTIME, SELF_TEST, STORAGE, HOOKS, THREAD, NUMBERS, CHECKS, TABLES };

static struct script script;
static uint64_t known[KNOWN_MOST]; /* handles, dead or alive */
static size_t known_count;
static CUlibrary loaded[CALLS_MOST]; /* of this input; unloaded in the end if it did not do so itself */
static size_t loaded_count;
static CUcontext contexts[CONTEXTS_MOST];
static uintptr_t kept[CONTEXTS_MOST][KEYS + 1]; /* what was put with each context, by key from 1; 0: nothing */
static unsigned int destroyed;

static void learn(CUresult result, const void *handle)
{
    if (result == CUDA_SUCCESS)
        known[known_count++ % KNOWN_MOST] = (uint64_t)(uintptr_t)handle;
}

static void *some_handle(void)
{
    uint64_t which = take_number(&script, 1);
    if (which < 240)
        return (void *)(uintptr_t)known[which % KNOWN_MOST];
    return (void *)(uintptr_t)take_number(&script, 8);
}

static const char *some_name(void)
{
    return names[take_number(&script, 1) % (sizeof names / sizeof *names)];
}

typedef CUresult slot(void *, void *, void *, void *);

static slot *place(unsigned int table, size_t index)
{
    const void *const *found = NULL;
    CUuuid id;
    memcpy(id.bytes, tables[table], sizeof id.bytes);
    must_hold(cuGetExportTable((const void **)&found, &id) == CUDA_SUCCESS);
    return (slot *)(uintptr_t)found[index];
}

/* It is out of the list before its destructor is called, and the driver may be called from there. */
static void destructor(CUcontext context, void *key, void *value)
{
    void *found = NULL;
    destroyed++;
    must_hold((uintptr_t)key >= 1 && (uintptr_t)key <= KEYS && value != NULL);
    must_hold(place(STORAGE, 2)(&found, context, key, NULL) != CUDA_SUCCESS);
    for (size_t at = 0; at < CONTEXTS_MOST; at++)
        if (contexts[at] == context)
            kept[at][(uintptr_t)key] = 0;
}

static void use_storage(size_t which)
{
    uintptr_t key = 1 + take_number(&script, 1) % KEYS, value = 1 + take_number(&script, 1);
    void *found = NULL;
    CUcontext context = contexts[which];
    if (context == NULL)
        return;
    switch (take_number(&script, 1) % 3) {
    case 0:
        must_hold(place(STORAGE, 0)(context, (void *)key, (void *)value, (void *)(uintptr_t)&destructor) == 0);
        kept[which][key] = value;
        break;
    case 1:
        must_hold((place(STORAGE, 1)(context, (void *)key, NULL, NULL) == 0) == (kept[which][key] != 0));
        kept[which][key] = 0;
        break;
    default:
        must_hold((place(STORAGE, 2)(&found, context, (void *)key, NULL) == 0) == (kept[which][key] != 0));
        must_hold((uintptr_t)found == kept[which][key]);
    }
}

static void end_context(size_t which)
{
    if (contexts[which] == NULL)
        return;
    unsigned int before = destroyed, values = 0;
    for (size_t key = 1; key <= KEYS; key++)
        values += kept[which][key] != 0;
    must_hold(cuCtxDestroy_v2(contexts[which]) == CUDA_SUCCESS);
    must_hold(destroyed - before == values);
    memset(kept[which], 0, sizeof kept[which]);
    contexts[which] = NULL;
}

static void use_table(void)
{
    static uint8_t room[4][64];
    const void *const *found = NULL;
    CUuuid id;
    uint64_t which = take_number(&script, 1) % (TABLES + 2);
    for (size_t at = 0; at < sizeof id.bytes; at++)
        id.bytes[at] = (char)(which < TABLES ? tables[which][at] : take_number(&script, 1));
    CUresult result = cuGetExportTable((const void **)&found, &id);
    must_hold((result == CUDA_SUCCESS) == (found != NULL));
    if (found == NULL || which >= TABLES || which == STORAGE)
        return;
    size_t count = (size_t)(uintptr_t)found[0] / sizeof *found, index = 1 + take_number(&script, 1) % (count - 1);
    memset(room, 0, sizeof room);
    if (which == SELF_TEST && index == 1) {
        typedef CUresult asked(uint32_t, uint64_t, uint64_t *);
        ((asked *)(uintptr_t)found[1])((uint32_t)take_number(&script, 4), take_number(&script, 8), (uint64_t *)room[0]);
    } else if (which == NUMBERS && index == 51) {
        ((slot *)(uintptr_t)found[index])(some_handle(), some_handle(), room[0], NULL);
    } else if (which == NUMBERS || which == CHECKS) {
        ((slot *)(uintptr_t)found[index])(some_handle(), room[0], room[1], NULL);
    } else if (which == RUNTIME && index == 2) {
        ((slot *)(uintptr_t)found[index])(room[0], (void *)(uintptr_t)(take_number(&script, 1) % 2), NULL, NULL);
    } else {
        ((slot *)(uintptr_t)found[index])(room[0], room[1], room[2], room[3]);
    }
}

static void use_library(void)
{
    CUlibrary library = NULL;
    CUkernel kernel = NULL;
    CUmodule module = NULL;
    CUfunction function = NULL;
    CUdeviceptr pointer = 0;
    const char *name = NULL;
    size_t bytes = 0, offset = 0;
    int value = 0;
    switch (take_number(&script, 1) % 11) {
    case 0: {
        const char *image = take_number(&script, 1) % 8 ? text : broken;
        CUresult result = cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0);
        learn(result, library);
        if (result == CUDA_SUCCESS)
            loaded[loaded_count++] = library;
        return;
    }
    case 1:
        cuLibraryUnload(some_handle());
        return;
    case 2:
        learn(cuLibraryGetKernel(&kernel, some_handle(), some_name()), kernel);
        return;
    case 3:
        learn(cuLibraryGetModule(&module, some_handle()), module);
        return;
    case 4:
        cuLibraryGetGlobal(&pointer, &bytes, some_handle(), some_name());
        return;
    case 5:
        learn(cuKernelGetFunction(&function, some_handle()), function);
        return;
    case 6:
        learn(cuKernelGetLibrary(&library, some_handle()), library);
        return;
    case 7:
        if (cuKernelGetName(&name, some_handle()) == CUDA_SUCCESS)
            must_hold(strcmp(name, "put") == 0);
        return;
    case 8:
        cuKernelGetAttribute(&value, (CUfunction_attribute)take_number(&script, 1), some_handle(), 0);
        return;
    case 9:
        cuKernelGetParamInfo(some_handle(), take_number(&script, 1) % 4, &offset, &bytes);
        return;
    default: {
        uint64_t to = 0;
        uint32_t number = 5;
        void *values[] = {&to, &number};
        cuLaunchKernel(some_handle(), 0, 1, 1, 1, 1, 1, 0, NULL, values, NULL); /* no blocks: refused, whatever it is */
    }
    }
}

static size_t free_bytes(CUcontext watcher)
{
    size_t available = 0, total = 0;
    must_hold(cuCtxSetCurrent(watcher) == CUDA_SUCCESS);
    must_hold(cuMemGetInfo_v2(&available, &total) == CUDA_SUCCESS);
    return available;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static CUcontext watcher;
    if (watcher == NULL) {
        setenv("GPUTAX_CUDA_RUNTIME", "1", 1);
        setenv("GPUTAX_SOFT_MEMORY_MB", "16", 1);
        setenv("GPUTAX_SOFT_COMPILE", "never", 1);
        must_hold(cuInit(0) == CUDA_SUCCESS && cuCtxCreate_v2(&watcher, 0, 0) == CUDA_SUCCESS);
    }
    size_t at_first = free_bytes(watcher);
    script = (struct script){bytes, count};
    memset(known, 0, sizeof known);
    known_count = 0;
    for (size_t call = 0; call < CALLS_MOST && script.left > 0; call++) {
        size_t which = take_number(&script, 1) % CONTEXTS_MOST;
        switch (take_number(&script, 1) % 6) {
        case 0:
            if (contexts[which] == NULL && cuCtxCreate_v2(&contexts[which], 0, 0) == CUDA_SUCCESS)
                learn(CUDA_SUCCESS, contexts[which]);
            break;
        case 1:
            end_context(which);
            break;
        case 2:
            cuCtxSetCurrent(contexts[which]);
            break;
        case 3:
            use_storage(which);
            break;
        case 4:
            use_table();
            break;
        default:
            use_library();
        }
    }
    for (size_t which = 0; which < CONTEXTS_MOST; which++)
        end_context(which);
    CUcontext popped;
    while (cuCtxPopCurrent_v2(&popped) == CUDA_SUCCESS) /* a context that is created stays on the thread's stack */
        continue;
    must_hold(cuCtxSetCurrent(watcher) == CUDA_SUCCESS);
    while (loaded_count > 0)
        cuLibraryUnload(loaded[--loaded_count]);
    must_hold(free_bytes(watcher) == at_first);
    return 0;
}
