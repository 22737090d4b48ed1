/* The device itself: initialisation from the environment, and what can be asked about it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calls/procs.h"
#include "device/device.h"
#include "device/null.h"
#include "device/shared.h"
#include "device/timeline.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static CUresult opened = CUDA_ERROR_NOT_INITIALIZED;
static bool asked_for;
static struct arena arena;
static char name[DEVICE_NAME_BYTES] = "gputax software device";

static bool memory_setting(size_t *bytes)
{
    const char *text = getenv("GPUTAX_SOFT_MEMORY_MB");
    if (!text || !*text)
        text = "1024";
    char *rest;
    errno = 0;
    long long megabytes = strtoll(text, &rest, 10);
    if (errno || *rest || megabytes < 1 || megabytes > 1 << 20) {
        fprintf(stderr, "gputax software device: GPUTAX_SOFT_MEMORY_MB=%s is not a number of 1 to 1048576\n", text);
        return false;
    }
    *bytes = (size_t)megabytes << 20;
    return true;
}

static void open_device(void)
{
    size_t bytes, used = strlen(name);
    bool good = memory_setting(&bytes) && shared_open() && null_open(name + used, sizeof name - used);
    used = strlen(name);
    if (!good || !timeline_open(null_timed(), name + used, sizeof name - used))
        opened = CUDA_ERROR_INVALID_VALUE;
    else if (!arena_open(&arena, bytes))
        opened = CUDA_ERROR_OUT_OF_MEMORY;
    else
        opened = CUDA_SUCCESS;
}

struct arena *device_arena(void)
{
    return &arena;
}

CUresult device_initialised(void)
{
    return __atomic_load_n(&asked_for, __ATOMIC_ACQUIRE) ? opened : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult device_ready(CUdevice device)
{
    CUresult result = device_initialised();
    if (result == CUDA_SUCCESS && device != 0)
        result = CUDA_ERROR_INVALID_DEVICE;
    return result;
}

CUresult cuInit(unsigned int flags)
{
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_once(&once, open_device);
    __atomic_store_n(&asked_for, true, __ATOMIC_RELEASE);
    return opened;
}

int procs_driver_version(void)
{
    return DEVICE_DRIVER_VERSION;
}

CUresult cuDriverGetVersion(int *version)
{
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = DEVICE_DRIVER_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    CUresult result = device_initialised();
    if (result != CUDA_SUCCESS)
        return result;
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = 1;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    CUresult result = device_ready(ordinal);
    if (result != CUDA_SUCCESS)
        return result;
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = 0;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *text, int capacity, CUdevice device)
{
    CUresult result = device_ready(device);
    if (result != CUDA_SUCCESS)
        return result;
    if (!text || capacity <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(text, (size_t)capacity, "%s", name);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    CUresult result = device_ready(device);
    if (result != CUDA_SUCCESS)
        return result;
    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(uuid->bytes, "gputax-software", sizeof uuid->bytes);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    return cuDeviceGetUuid_v2(uuid, device);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    CUresult result = device_ready(device);
    if (result != CUDA_SUCCESS)
        return result;
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = arena.bytes;
    return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
    CUresult result = device_ready(device);
    if (result != CUDA_SUCCESS)
        return result;
    if (!major || !minor)
        return CUDA_ERROR_INVALID_VALUE;
    *major = DEVICE_CAPABILITY_MAJOR;
    *minor = DEVICE_CAPABILITY_MINOR;
    return CUDA_SUCCESS;
}

/* The shape of an H100 SXM, for null kernels only: libraries choose their kernels by these numbers, and divide by them. */
static int null_attribute_value(CUdevice_attribute attribute)
{
    enum { CLOCK_KHZ = 13, MEMORY_CLOCK_KHZ = 36, BUS_BITS = 37, L2_BYTES = 38, RESERVED_SHARED = 111 };
    switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        return DEVICE_NULL_MULTIPROCESSORS;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
        return 2048;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
        return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
        return 228 << 10;
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH:
        return 1;
    case CLOCK_KHZ:
        return 1980000;
    case MEMORY_CLOCK_KHZ:
        return 2619000;
    case BUS_BITS:
        return 5120;
    case L2_BYTES:
        return 50 << 20;
    case RESERVED_SHARED:
        return 1024;
    default:
        return -1;
    }
}

static int attribute_value(CUdevice_attribute attribute)
{
    int of_null = null_kernels() ? null_attribute_value(attribute) : -1;
    if (of_null >= 0)
        return of_null;
    switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
        return DEVICE_THREADS_PER_BLOCK;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
        return DEVICE_THREADS_PER_MULTIPROCESSOR;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
        return PTX_COOPERATIVE_BLOCKS;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
        return DEVICE_BLOCK_DIM_Z;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
        return DEVICE_GRID_DIM_X;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
        return DEVICE_GRID_DIM_YZ;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
        return DEVICE_STATIC_SHARED_BYTES;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        return DEVICE_SHARED_BYTES;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
        return DEVICE_CONSTANT_BYTES;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
        return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
        return 0x7fffffff;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
        return 65536;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
        return 512;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        return DEVICE_CAPABILITY_MAJOR;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        return DEVICE_CAPABILITY_MINOR;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
    case CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT:
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
        return 1;
    default:
        return 0; /* features, clocks and caches that it does not have */
    }
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    CUresult result = device_ready(device);
    if (result != CUDA_SUCCESS)
        return result;
    if (!value || (int)attribute < 1 || (int)attribute >= CU_DEVICE_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    *value = attribute_value(attribute);
    return CUDA_SUCCESS;
}

/* How the driver encodes a descriptor is not published, and no kernel here could read one. */
CUresult cuTensorMapEncodeTiled(CUtensorMap *map, int type, cuuint32_t rank, void *address,
                                const cuuint64_t *dimensions, const cuuint64_t *strides, const cuuint32_t *box,
                                const cuuint32_t *element_strides, int interleave, int swizzle, int promotion, int fill)
{
    (void)map, (void)type, (void)rank, (void)address, (void)dimensions, (void)strides, (void)box;
    (void)element_strides, (void)interleave, (void)swizzle, (void)promotion, (void)fill;
    return CUDA_ERROR_NOT_SUPPORTED;
}
