/* Libraries: an image that outlives contexts and is loaded as a module into each one that uses it.
 *
 * Where a context is current when a library is loaded, its module is loaded at once, so that a bad image is refused there;
 * otherwise, and where the program keeps the image itself, when something of it is first used: a framework has hundreds of
 * libraries and uses a few. One lock is held over all of it, also while a module is loaded.
 */
#include "driver/library.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "calls/image.h"
#include "calls/layout.h"
#include "driver/fork.h"

enum { TABLE_MOST = 1 << 16 };

struct in_context {             /* what a library or a kernel is in one context */
    unsigned long long context; /* its id, which no other context ever has */
    CUcontext where;
    void *handle; /* a module or a function */
};

struct entry { /* a library, or a kernel of one */
    uint64_t id;
    struct entry *library; /* NULL: it is one */
    const void *image;     /* of a library: its own copy, or the program's */
    void *copy;
    char *name; /* of a kernel */
    struct in_context *contexts;
    size_t contexts_count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry **entries;
static uint32_t slots;
static uint64_t uses;

void libraries_lock(void)
{
    pthread_mutex_lock(&lock);
}

void libraries_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

static void free_entry(struct entry *entry)
{
    free(entry->copy);
    free(entry->name);
    free(entry->contexts);
    free(entry);
}

void libraries_reset(void)
{
    pthread_mutex_init(&lock, NULL);
    for (uint32_t at = 0; at < slots; at++) {
        if (entries[at] != NULL)
            free_entry(entries[at]);
        entries[at] = NULL;
    }
}

static struct entry *find(const void *handle, bool library)
{
    uint64_t id = (uint64_t)(uintptr_t)handle;
    uint32_t slot = (uint32_t)id & (TABLE_MOST - 1);
    struct entry *entry = slot < slots ? entries[slot] : NULL;
    return entry != NULL && entry->id == id && (entry->library == NULL) == library ? entry : NULL;
}

static bool keep(struct entry *entry)
{
    uint32_t slot = 0;
    while (slot < slots && entries[slot] != NULL)
        slot++;
    if (slot == slots) {
        uint32_t more = slots == 0 ? 64 : slots * 2;
        struct entry **grown = slots < TABLE_MOST ? realloc(entries, more * sizeof *grown) : NULL;
        if (grown == NULL)
            return false;
        memset(grown + slots, 0, (more - slots) * sizeof *grown);
        entries = grown;
        slots = more;
    }
    entry->id = KERNEL_TAG | (++uses & 0x7fffffff) << 32 | slot;
    entries[slot] = entry;
    return true;
}

static CUresult current_id(unsigned long long *id)
{
    return cuCtxGetId(NULL, id);
}

/* Its handle in a context, NULL if there is none yet. */
static void *handle_in(const struct entry *entry, unsigned long long context)
{
    for (size_t at = 0; at < entry->contexts_count; at++)
        if (entry->contexts[at].context == context)
            return entry->contexts[at].handle;
    return NULL;
}

static bool remember(struct entry *entry, unsigned long long context, void *handle)
{
    CUcontext where = NULL;
    struct in_context *grown = realloc(entry->contexts, (entry->contexts_count + 1) * sizeof *grown);
    if (grown == NULL)
        return false;
    entry->contexts = grown;
    cuCtxGetCurrent(&where);
    grown[entry->contexts_count++] = (struct in_context){context, where, handle};
    return true;
}

static CUresult module_of(struct entry *library, unsigned int count, CUjit_option *options, void **values,
                          CUmodule *module)
{
    unsigned long long context;
    CUresult result = current_id(&context);
    if (result != CUDA_SUCCESS)
        return result;
    *module = handle_in(library, context);
    if (*module != NULL)
        return CUDA_SUCCESS;
    result = cuModuleLoadDataEx(module, library->image, count, options, values);
    if (result == CUDA_SUCCESS && !remember(library, context, *module)) {
        cuModuleUnload(*module);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return result;
}

static CUresult function_in_context(struct entry *kernel, CUfunction *function)
{
    unsigned long long context;
    CUmodule module;
    CUresult result = current_id(&context);
    if (result != CUDA_SUCCESS)
        return result;
    *function = handle_in(kernel, context);
    if (*function != NULL)
        return CUDA_SUCCESS;
    result = module_of(kernel->library, 0, NULL, NULL, &module);
    if (result == CUDA_SUCCESS)
        result = cuModuleGetFunction(function, module, kernel->name);
    if (result == CUDA_SUCCESS && !remember(kernel, context, *function))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    return result;
}

CUresult kernel_function(CUfunction handle, CUfunction *function)
{
    libraries_lock();
    struct entry *kernel = find(handle, false);
    CUresult result = kernel != NULL ? function_in_context(kernel, function) : CUDA_ERROR_INVALID_HANDLE;
    libraries_unlock();
    return result;
}

/* The length of an image is told by its own headers alone. */
static CUresult take_image(struct entry *library, const void *code, bool preserved)
{
    code = image_unwrapped(code);
    size_t bytes = image_bytes(code, IMAGE_MOST);
    if (bytes == 0)
        return CUDA_ERROR_INVALID_IMAGE;
    library->image = code;
    if (preserved)
        return CUDA_SUCCESS;
    library->image = library->copy = malloc(bytes);
    if (library->copy == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(library->copy, code, bytes);
    return CUDA_SUCCESS;
}

static CUresult load(const void *code, bool preserved, unsigned int count, CUjit_option *options, void **values,
                     CUlibrary *library)
{
    CUcontext current = NULL;
    CUmodule module = NULL;
    struct entry *made = calloc(1, sizeof *made);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = take_image(made, code, preserved);
    if (result == CUDA_SUCCESS)
        result = cuCtxGetCurrent(&current);
    if (result == CUDA_SUCCESS && current != NULL && (!preserved || count != 0)) /* options are for this load */
        result = module_of(made, count, options, values, &module);
    if (result == CUDA_SUCCESS && !keep(made)) {
        if (module != NULL)
            cuModuleUnload(module);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS)
        free_entry(made);
    else
        *library = (CUlibrary)(uintptr_t)made->id;
    return result;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit, void **jit_values,
                           unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count)
{
    if (library == NULL || code == NULL || (count != 0 && options == NULL) || (jit_count != 0 && jit == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    bool preserved = false; /* the option has no value */
    (void)values;
    for (unsigned int at = 0; at < count; at++) {
        if (options[at] != CU_LIBRARY_BINARY_IS_PRESERVED)
            return CUDA_ERROR_NOT_SUPPORTED;
        preserved = true;
    }
    libraries_lock();
    CUresult result = load(code, preserved, jit_count, jit, jit_values, library);
    libraries_unlock();
    return result;
}

/* The module goes from the current context; those of other contexts go with their contexts. */
/* A context that has ended took its module with it. */
static CUresult unload_from(const struct in_context *one)
{
    unsigned long long id;
    CUcontext popped;
    if (cuCtxGetId(one->where, &id) != CUDA_SUCCESS || id != one->context)
        return CUDA_SUCCESS;
    CUresult result = cuCtxPushCurrent_v2(one->where);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuModuleUnload(one->handle);
    cuCtxPopCurrent_v2(&popped);
    return result;
}

CUresult cuLibraryUnload(CUlibrary handle)
{
    CUresult result = CUDA_SUCCESS;
    libraries_lock();
    struct entry *library = find(handle, true);
    for (size_t at = 0; library != NULL && at < library->contexts_count; at++) {
        CUresult one = unload_from(&library->contexts[at]);
        result = result == CUDA_SUCCESS ? one : result;
    }
    for (uint32_t at = 0; at < slots && library != NULL; at++)
        if (entries[at] != NULL && entries[at]->library == library) {
            free_entry(entries[at]);
            entries[at] = NULL;
        }
    if (library != NULL) {
        entries[(uint32_t)library->id & (TABLE_MOST - 1)] = NULL;
        free_entry(library);
    }
    libraries_unlock();
    return library != NULL ? result : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult add_kernel(struct entry *library, const char *name, CUkernel *kernel)
{
    CUfunction function;
    CUcontext current = NULL;
    for (uint32_t at = 0; at < slots; at++)
        if (entries[at] != NULL && entries[at]->library == library && strcmp(entries[at]->name, name) == 0) {
            *kernel = (CUkernel)(uintptr_t)entries[at]->id;
            return CUDA_SUCCESS;
        }
    struct entry *made = calloc(1, sizeof *made);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->library = library;
    made->name = strdup(name);
    CUresult result = made->name != NULL ? cuCtxGetCurrent(&current) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS && current == NULL)
        result = CUDA_ERROR_INVALID_CONTEXT; /* whether there is such a kernel is known only where it is loaded */
    if (result == CUDA_SUCCESS)
        result = function_in_context(made, &function);
    if (result == CUDA_SUCCESS && !keep(made))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS)
        free_entry(made);
    else
        *kernel = (CUkernel)(uintptr_t)made->id;
    return result;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary handle, const char *name)
{
    if (kernel == NULL || name == NULL || strnlen(name, NAME_MOST) >= NAME_MOST)
        return CUDA_ERROR_INVALID_VALUE;
    libraries_lock();
    struct entry *library = find(handle, true);
    CUresult result = library != NULL ? add_kernel(library, name, kernel) : CUDA_ERROR_INVALID_HANDLE;
    libraries_unlock();
    return result;
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary handle)
{
    if (module == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    libraries_lock();
    struct entry *library = find(handle, true);
    CUresult result = library != NULL ? module_of(library, 0, NULL, NULL, module) : CUDA_ERROR_INVALID_HANDLE;
    libraries_unlock();
    return result;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *pointer, size_t *bytes, CUlibrary library, const char *name)
{
    CUmodule module;
    CUresult result = cuLibraryGetModule(&module, library);
    return result == CUDA_SUCCESS ? cuModuleGetGlobal_v2(pointer, bytes, module, name) : result;
}

/* An image may be a fat binary wherever a module is loaded. */
CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    return cuModuleLoadData(module, image);
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    if (mode == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    return function != NULL ? kernel_function((CUfunction)kernel, function) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel handle)
{
    if (library == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    libraries_lock();
    const struct entry *kernel = find(handle, false);
    if (kernel != NULL)
        *library = (CUlibrary)(uintptr_t)kernel->library->id;
    libraries_unlock();
    return kernel != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuKernelGetName(const char **name, CUkernel handle)
{
    if (name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    libraries_lock();
    const struct entry *kernel = find(handle, false);
    if (kernel != NULL)
        *name = kernel->name;
    libraries_unlock();
    return kernel != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device)
{
    CUfunction function;
    if (device != 0)
        return CUDA_ERROR_INVALID_DEVICE;
    CUresult result = cuKernelGetFunction(&function, kernel);
    return result == CUDA_SUCCESS ? cuFuncGetAttribute(value, attribute, function) : result;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device)
{
    CUfunction function;
    if (device != 0)
        return CUDA_ERROR_INVALID_DEVICE;
    CUresult result = cuKernelGetFunction(&function, kernel);
    return result == CUDA_SUCCESS ? cuFuncSetAttribute(function, attribute, value) : result;
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *bytes)
{
    CUfunction function;
    CUresult result = cuKernelGetFunction(&function, kernel);
    return result == CUDA_SUCCESS ? cuFuncGetParamInfo(function, index, offset, bytes) : result;
}
