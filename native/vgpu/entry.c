/* How a program finds its way in: cuInit, addresses by name and version, devices, error texts. */
#include <stdlib.h>
#include <string.h>

#include "calls/procs.h"
#include "vgpu/vgpu.h"

CUresult cuInit(unsigned int flags)
{
    return flags != 0 ? CUDA_ERROR_INVALID_VALUE : vgpu_initialise();
}

/* One device, whatever the proxy's machine has: device 0 of the backend. */
CUresult cuDeviceGetCount(int *count)
{
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    vgpu_leave();
    *count = 1;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    if (device == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    vgpu_leave();
    if (ordinal != 0)
        return CUDA_ERROR_INVALID_DEVICE;
    *device = 0;
    return CUDA_SUCCESS;
}

/* The newest form of a function that a program of this version knows; NULL if we do not have that form. */
static const struct proc *find(const char *symbol, int version, bool per_thread, bool *known)
{
    const struct proc *found = NULL;
    *known = false;
    for (size_t at = 0; at < procs_count; at++) {
        if (strcmp(procs[at].name, symbol) != 0)
            continue;
        *known = true;
        if (procs[at].since <= version && (found == NULL || procs[at].since > found->since))
            found = &procs[at];
    }
    if (found != NULL && (version >= found->until || (per_thread && found->default_stream)))
        return NULL;
    return found;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    if (symbol == NULL || function == NULL ||
        flags > (CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM))
        return CUDA_ERROR_INVALID_VALUE;
    bool known;
    const struct proc *proc =
        find(symbol, version, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0, &known);
    *function = proc != NULL ? proc->function : NULL;
    if (status != NULL)
        *status = proc != NULL ? CU_GET_PROC_ADDRESS_SUCCESS
                  : known      ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                               : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return proc != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)
{
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}

/* The CUDA runtime asks for undocumented tables here and gives up without them: only the driver API is supported. */
CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    (void)id;
    if (table == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}

static CUresult words(CUresult error, const char **text, bool name)
{
    if (text == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *text = NULL;
    switch ((int)error) {
#define WORDS(result, number, sentence) \
    case number: \
        *text = name ? #result : sentence; \
        break;
        CUDA_RESULTS(WORDS)
#undef WORDS
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **text)
{
    return words(error, text, true);
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    return words(error, text, false);
}
