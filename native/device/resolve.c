/* Version-aware look-up of functions by name: the newest ABI that the caller's CUDA version knows, or not found. */
#include <stdbool.h>
#include <string.h>

#include "include/cuda_abi.h"

struct entry {
    const char *name;
    int version;      /* the CUDA version that brought this ABI */
    bool takes_stream; /* has a variant for per-thread default streams, which we have not */
    void *function;
};

/* ISO C has no conversion between function and object pointers; dlsym, and so CUDA, rests on POSIX's promise of it. */
#pragma GCC diagnostic ignored "-Wpedantic"
static const struct entry ENTRIES[] = {
    {"cuCtxCreate", 3020, false, (void *)cuCtxCreate_v2},
    {"cuCtxCreate", 11040, false, (void *)cuCtxCreate_v3},
    {"cuCtxCreate", 12050, false, (void *)cuCtxCreate_v4},
    {"cuCtxDestroy", 4000, false, (void *)cuCtxDestroy_v2},
    {"cuCtxGetApiVersion", 3020, false, (void *)cuCtxGetApiVersion},
    {"cuCtxGetCurrent", 4000, false, (void *)cuCtxGetCurrent},
    {"cuCtxGetDevice", 2000, false, (void *)cuCtxGetDevice},
    {"cuCtxGetDevice", 13000, false, (void *)cuCtxGetDevice_v2},
    {"cuCtxGetFlags", 7000, false, (void *)cuCtxGetFlags},
    {"cuCtxGetStreamPriorityRange", 5050, false, (void *)cuCtxGetStreamPriorityRange},
    {"cuCtxPopCurrent", 4000, false, (void *)cuCtxPopCurrent_v2},
    {"cuCtxPushCurrent", 4000, false, (void *)cuCtxPushCurrent_v2},
    {"cuCtxSetCurrent", 4000, false, (void *)cuCtxSetCurrent},
    {"cuCtxSetFlags", 12010, false, (void *)cuCtxSetFlags},
    {"cuCtxSynchronize", 2000, false, (void *)cuCtxSynchronize},
    {"cuCtxSynchronize", 13000, false, (void *)cuCtxSynchronize_v2},
    {"cuDeviceComputeCapability", 2000, false, (void *)cuDeviceComputeCapability},
    {"cuDeviceGet", 2000, false, (void *)cuDeviceGet},
    {"cuDeviceGetAttribute", 2000, false, (void *)cuDeviceGetAttribute},
    {"cuDeviceGetCount", 2000, false, (void *)cuDeviceGetCount},
    {"cuDeviceGetName", 2000, false, (void *)cuDeviceGetName},
    {"cuDeviceGetUuid", 9020, false, (void *)cuDeviceGetUuid},
    {"cuDeviceGetUuid", 11040, false, (void *)cuDeviceGetUuid_v2},
    {"cuDevicePrimaryCtxGetState", 7000, false, (void *)cuDevicePrimaryCtxGetState},
    {"cuDevicePrimaryCtxRelease", 11000, false, (void *)cuDevicePrimaryCtxRelease_v2},
    {"cuDevicePrimaryCtxReset", 11000, false, (void *)cuDevicePrimaryCtxReset_v2},
    {"cuDevicePrimaryCtxRetain", 7000, false, (void *)cuDevicePrimaryCtxRetain},
    {"cuDevicePrimaryCtxSetFlags", 11000, false, (void *)cuDevicePrimaryCtxSetFlags_v2},
    {"cuDeviceTotalMem", 3020, false, (void *)cuDeviceTotalMem_v2},
    {"cuDriverGetVersion", 2020, false, (void *)cuDriverGetVersion},
    {"cuEventCreate", 2000, false, (void *)cuEventCreate},
    {"cuEventDestroy", 4000, false, (void *)cuEventDestroy_v2},
    {"cuEventElapsedTime", 2000, false, (void *)cuEventElapsedTime},
    {"cuEventElapsedTime", 12080, false, (void *)cuEventElapsedTime_v2},
    {"cuEventQuery", 2000, false, (void *)cuEventQuery},
    {"cuEventRecord", 2000, true, (void *)cuEventRecord},
    {"cuEventSynchronize", 2000, false, (void *)cuEventSynchronize},
    {"cuFuncGetAttribute", 2020, false, (void *)cuFuncGetAttribute},
    {"cuFuncGetParamInfo", 12040, false, (void *)cuFuncGetParamInfo},
    {"cuFuncSetAttribute", 9000, false, (void *)cuFuncSetAttribute},
    {"cuGetErrorName", 6000, false, (void *)cuGetErrorName},
    {"cuGetErrorString", 6000, false, (void *)cuGetErrorString},
    {"cuGetExportTable", 3000, false, (void *)cuGetExportTable},
    {"cuGetProcAddress", 11030, false, (void *)cuGetProcAddress},
    {"cuGetProcAddress", 12000, false, (void *)cuGetProcAddress_v2},
    {"cuInit", 2000, false, (void *)cuInit},
    {"cuLaunchKernel", 4000, true, (void *)cuLaunchKernel},
    {"cuLaunchKernelEx", 11060, true, (void *)cuLaunchKernelEx},
    {"cuMemAlloc", 3020, false, (void *)cuMemAlloc_v2},
    {"cuMemAllocHost", 3020, false, (void *)cuMemAllocHost_v2},
    {"cuMemFree", 3020, false, (void *)cuMemFree_v2},
    {"cuMemFreeHost", 2000, false, (void *)cuMemFreeHost},
    {"cuMemGetAddressRange", 3020, false, (void *)cuMemGetAddressRange_v2},
    {"cuMemGetInfo", 3020, false, (void *)cuMemGetInfo_v2},
    {"cuMemHostAlloc", 2020, false, (void *)cuMemHostAlloc},
    {"cuMemcpyDtoD", 3020, true, (void *)cuMemcpyDtoD_v2},
    {"cuMemcpyDtoDAsync", 3020, true, (void *)cuMemcpyDtoDAsync_v2},
    {"cuMemcpyDtoH", 3020, true, (void *)cuMemcpyDtoH_v2},
    {"cuMemcpyDtoHAsync", 3020, true, (void *)cuMemcpyDtoHAsync_v2},
    {"cuMemcpyHtoD", 3020, true, (void *)cuMemcpyHtoD_v2},
    {"cuMemcpyHtoDAsync", 3020, true, (void *)cuMemcpyHtoDAsync_v2},
    {"cuMemsetD32", 3020, true, (void *)cuMemsetD32_v2},
    {"cuMemsetD32Async", 3020, true, (void *)cuMemsetD32Async},
    {"cuMemsetD8", 3020, true, (void *)cuMemsetD8_v2},
    {"cuMemsetD8Async", 3020, true, (void *)cuMemsetD8Async},
    {"cuModuleGetFunction", 2000, false, (void *)cuModuleGetFunction},
    {"cuModuleGetGlobal", 3020, false, (void *)cuModuleGetGlobal_v2},
    {"cuModuleLoadData", 2000, false, (void *)cuModuleLoadData},
    {"cuModuleLoadDataEx", 2010, false, (void *)cuModuleLoadDataEx},
    {"cuModuleUnload", 2000, false, (void *)cuModuleUnload},
    {"cuPointerGetAttribute", 4000, false, (void *)cuPointerGetAttribute},
    {"cuStreamCreate", 2000, false, (void *)cuStreamCreate},
    {"cuStreamCreateWithPriority", 5050, false, (void *)cuStreamCreateWithPriority},
    {"cuStreamDestroy", 4000, false, (void *)cuStreamDestroy_v2},
    {"cuStreamQuery", 2000, true, (void *)cuStreamQuery},
    {"cuStreamSynchronize", 2000, true, (void *)cuStreamSynchronize},
    {"cuStreamWaitEvent", 3020, true, (void *)cuStreamWaitEvent},
};

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    const cuuint64_t known = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    const struct entry *best = NULL;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (!symbol || !function || flags > known || flags == known)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < sizeof ENTRIES / sizeof *ENTRIES; i++) {
        const struct entry *entry = &ENTRIES[i];
        if (strcmp(entry->name, symbol) != 0)
            continue;
        if (entry->takes_stream && (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM))
            continue;
        if (entry->version > version)
            found = best ? found : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        else if (!best || best->version < entry->version)
            best = entry;
    }
    *function = best ? best->function : NULL;
    if (status)
        *status = best ? CU_GET_PROC_ADDRESS_SUCCESS : found;
    return best ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags) {
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}

/* The hidden tables of the CUDA runtime are not here, so it refuses to start instead of half working. */
CUresult cuGetExportTable(const void **table, const CUuuid *id) {
    if (!table || !id)
        return CUDA_ERROR_INVALID_VALUE;
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
