/* Version-aware look-up of functions by name: the newest ABI that the caller's CUDA version knows, or not found. */
#include <string.h>

#include "calls/procs.h"
#include "cuda_calls.h"

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    const cuuint64_t known = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    const struct proc *best = NULL;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (!symbol || !function || flags > known || flags == known)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < procs_count; i++) {
        const struct proc *entry = &procs[i];
        if (strcmp(entry->name, symbol) != 0)
            continue;
        if (entry->default_stream && (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM))
            continue;
        if (entry->since > version)
            found = best ? found : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        else if (!best || best->since < entry->since)
            best = entry;
    }
    if (best && version >= best->until) {
        best = NULL;
        found = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    }
    *function = best ? best->function : NULL;
    if (status)
        *status = best ? CU_GET_PROC_ADDRESS_SUCCESS : found;
    return best ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)
{
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}

/* The hidden tables of the CUDA runtime are not here, so it refuses to start instead of half working. */
CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    if (!table || !id)
        return CUDA_ERROR_INVALID_VALUE;
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
