/* Opens the backend by path, apart from every other library of the process, and looks its functions up by exported name. */
#include "proxy/backend.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool look_up(struct backend *backend, void *library)
{
    struct backend_calls *calls = &backend->calls;
#define LOOK_UP(name) *(void **)&calls->name = dlsym(library, #name);
    BACKEND_CALLS(LOOK_UP)
#undef LOOK_UP
    *(void **)&backend->load_bounded = dlsym(library, "gputaxModuleLoadBounded");
    *(void **)&backend->set_meter = dlsym(library, "gputaxSetMeter");
    *(void **)&backend->busy = dlsym(library, "gputaxBusy");
    return calls->cuInit != NULL && calls->cuDeviceGet != NULL && calls->cuDeviceGetName != NULL &&
           calls->cuDeviceTotalMem_v2 != NULL && calls->cuCtxDestroy_v2 != NULL && calls->cuCtxSetCurrent != NULL &&
           calls->cuCtxSynchronize != NULL && calls->cuMemAlloc_v2 != NULL && calls->cuMemFree_v2 != NULL &&
           calls->cuMemGetInfo_v2 != NULL && calls->cuMemsetD8_v2 != NULL && calls->cuMemcpyHtoDAsync_v2 != NULL &&
           calls->cuMemcpyDtoHAsync_v2 != NULL && calls->cuStreamSynchronize != NULL &&
           (calls->cuCtxCreate_v2 != NULL || calls->cuCtxCreate_v4 != NULL);
}

bool backend_open(struct backend *backend, const char *path, char *why, size_t why_size)
{
    memset(backend, 0, sizeof *backend);
    backend->path = path;
    setenv("GPUTAX_SOFT_PRINTF", "off", 1); /* of the software device: a tenant's kernels do not write our log */
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(why, why_size, "cannot open the backend: %s", dlerror());
        return false;
    }
    if (!look_up(backend, library)) {
        snprintf(why, why_size, "%s is not a libcuda: it lacks functions that the proxy needs", path);
        return false;
    }
    const struct backend_calls *calls = &backend->calls;
    CUresult result = calls->cuInit(0);
    if (result == CUDA_SUCCESS)
        result = calls->cuDeviceGet(&backend->device, 0);
    if (result == CUDA_SUCCESS)
        result = calls->cuDeviceGetName(backend->name, sizeof backend->name, backend->device);
    if (result == CUDA_SUCCESS)
        result = calls->cuDeviceTotalMem_v2(&backend->memory_bytes, backend->device);
    if (result != CUDA_SUCCESS) {
        snprintf(why, why_size, "%s has no usable device 0 (CUDA error %d)", path, (int)result);
        return false;
    }
    backend->name[sizeof backend->name - 1] = 0;
    static const char software[] = "gputax software device";
    backend->clears_itself = strncmp(backend->name, software, sizeof software - 1) == 0;
    return true;
}

bool backend_works(const struct backend *backend)
{
    const struct backend_calls *calls = &backend->calls;
    CUcontext context;
    if (backend->clears_itself || calls->cuCtxCreate_v2 == NULL)
        return true;
    return calls->cuCtxCreate_v2(&context, 0, backend->device) == CUDA_SUCCESS &&
           calls->cuCtxDestroy_v2(context) == CUDA_SUCCESS;
}
