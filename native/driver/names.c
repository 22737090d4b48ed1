/* Names that libraries look up beside the newer or more general form of the same call. */
#include <stdio.h>
#include <stdlib.h>

#include "calls/image.h"
#include "cuda_calls.h"

CUresult cuCtxPushCurrent(CUcontext context)
{
    return cuCtxPushCurrent_v2(context);
}

CUresult cuCtxPopCurrent(CUcontext *context)
{
    return cuCtxPopCurrent_v2(context);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    return cuDevicePrimaryCtxRelease_v2(device);
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    return cuDevicePrimaryCtxReset_v2(device);
}

/* The whole file with a 0 behind it, or NULL. */
static char *read_file(FILE *file)
{
    size_t room = 1 << 16, used = 0;
    char *bytes = malloc(room);
    while (bytes != NULL) {
        used += fread(bytes + used, 1, room - 1 - used, file);
        if (used < room - 1)
            break;
        char *grown = room <= IMAGE_MOST ? realloc(bytes, room * 2) : NULL;
        if (grown == NULL)
            free(bytes);
        bytes = grown;
        room *= 2;
    }
    if (bytes != NULL && ferror(file)) {
        free(bytes);
        bytes = NULL;
    }
    if (bytes != NULL)
        bytes[used] = 0;
    return bytes;
}

CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    if (module == NULL || path == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return CUDA_ERROR_FILE_NOT_FOUND;
    char *image = read_file(file);
    fclose(file);
    CUresult result = image != NULL ? cuModuleLoadData(module, image) : CUDA_ERROR_INVALID_IMAGE;
    free(image);
    return result;
}

/* A preference that a driver may pass over, as it does here; the function must exist all the same. */
CUresult cuFuncSetCacheConfig(CUfunction function, int preference)
{
    enum { CACHE_EQUAL = 3 };
    int threads;
    if (preference < 0 || preference > CACHE_EQUAL)
        return CUDA_ERROR_INVALID_VALUE;
    return cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function);
}

/* No stream has one. */
CUresult cuStreamGetGreenCtx(CUstream stream, void **context)
{
    (void)stream;
    if (context == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *context = NULL;
    return CUDA_SUCCESS;
}

/* There is one device, and none is a peer of itself. */
CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    if (can == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (device != 0 || peer != 0)
        return CUDA_ERROR_INVALID_DEVICE;
    *can = 0;
    return CUDA_SUCCESS;
}
