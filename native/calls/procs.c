/* cuGetProcAddress of libvgpu and of the software device: one look-up in the generated table that each has of its own. */
#include <stdbool.h>
#include <string.h>

#include "calls/procs.h"
#include "cuda_calls.h"

/* The newest form that a program of this version knows, or NULL; the status says why. */
static const struct proc *find(const char *symbol, int version, CUdriverProcAddressQueryResult *status)
{
    const struct proc *found = NULL;
    *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    for (size_t at = 0; at < procs_count; at++) {
        const struct proc *proc = &procs[at];
        if (strcmp(proc->name, symbol) != 0)
            continue;
        *status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        if (proc->since <= version && (found == NULL || proc->since > found->since))
            found = proc;
    }
    if (found == NULL || version >= found->until)
        return NULL;
    *status = CU_GET_PROC_ADDRESS_SUCCESS;
    return found;
}

/* As documented since CUDA 12: what is not there is a success with a NULL address, and the status gives the reason. */
CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    CUdriverProcAddressQueryResult why;
    if (function != NULL)
        *function = NULL;
    if (symbol == NULL || function == NULL || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    int newest = procs_driver_version();
    if (newest != 0 && version > newest)
        return CUDA_ERROR_INVALID_VALUE;
    const struct proc *proc = find(symbol, version, &why);
    bool per_thread = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if (proc != NULL)
        *function = per_thread && proc->per_thread != NULL ? proc->per_thread : proc->function;
    if (status != NULL)
        *status = why;
    return CUDA_SUCCESS;
}

/* The form of CUDA 11 has no status: there it is an error. */
CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)
{
    CUresult result = cuGetProcAddress_v2(symbol, function, version, flags, NULL);
    return result == CUDA_SUCCESS && *function == NULL ? CUDA_ERROR_NOT_FOUND : result;
}
