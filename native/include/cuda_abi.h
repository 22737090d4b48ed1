/* The part of the CUDA driver ABI that gputax speaks: types and numbers. The prototypes are
 * generated from calls/calls.toml (cuda_calls.h). */
#ifndef GPUTAX_CUDA_ABI_H
#define GPUTAX_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

/* X(name, number, our description of it) for every result code of CUDA 13. */
#define CUDA_RESULTS(X) \
    X(CUDA_SUCCESS, 0, "no error") \
    X(CUDA_ERROR_INVALID_VALUE, 1, "an argument is out of its range") \
    X(CUDA_ERROR_OUT_OF_MEMORY, 2, "out of memory") \
    X(CUDA_ERROR_NOT_INITIALIZED, 3, "cuInit has not been called") \
    X(CUDA_ERROR_DEINITIALIZED, 4, "the driver is shutting down") \
    X(CUDA_ERROR_PROFILER_DISABLED, 5, "profiler disabled") \
    X(CUDA_ERROR_PROFILER_NOT_INITIALIZED, 6, "profiler not initialized") \
    X(CUDA_ERROR_PROFILER_ALREADY_STARTED, 7, "profiler already started") \
    X(CUDA_ERROR_PROFILER_ALREADY_STOPPED, 8, "profiler already stopped") \
    X(CUDA_ERROR_STUB_LIBRARY, 34, "this libcuda is a stub") \
    X(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, 36, "call requires newer driver") \
    X(CUDA_ERROR_DEVICE_UNAVAILABLE, 46, "the device is not available") \
    X(CUDA_ERROR_NO_DEVICE, 100, "there is no CUDA device") \
    X(CUDA_ERROR_INVALID_DEVICE, 101, "there is no device of that number") \
    X(CUDA_ERROR_DEVICE_NOT_LICENSED, 102, "device not licensed") \
    X(CUDA_ERROR_INVALID_IMAGE, 200, "the module image is not valid") \
    X(CUDA_ERROR_INVALID_CONTEXT, 201, "there is no valid context here") \
    X(CUDA_ERROR_CONTEXT_ALREADY_CURRENT, 202, "the context is already current") \
    X(CUDA_ERROR_MAP_FAILED, 205, "map failed") \
    X(CUDA_ERROR_UNMAP_FAILED, 206, "unmap failed") \
    X(CUDA_ERROR_ARRAY_IS_MAPPED, 207, "array is mapped") \
    X(CUDA_ERROR_ALREADY_MAPPED, 208, "already mapped") \
    X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209, "the image has no code for this device") \
    X(CUDA_ERROR_ALREADY_ACQUIRED, 210, "already acquired") \
    X(CUDA_ERROR_NOT_MAPPED, 211, "not mapped") \
    X(CUDA_ERROR_NOT_MAPPED_AS_ARRAY, 212, "not mapped as array") \
    X(CUDA_ERROR_NOT_MAPPED_AS_POINTER, 213, "not mapped as pointer") \
    X(CUDA_ERROR_ECC_UNCORRECTABLE, 214, "ecc uncorrectable") \
    X(CUDA_ERROR_UNSUPPORTED_LIMIT, 215, "the limit is not known on this device") \
    X(CUDA_ERROR_CONTEXT_ALREADY_IN_USE, 216, "the context is in use elsewhere") \
    X(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, 217, "peer access unsupported") \
    X(CUDA_ERROR_INVALID_PTX, 218, "the PTX could not be compiled") \
    X(CUDA_ERROR_INVALID_GRAPHICS_CONTEXT, 219, "invalid graphics context") \
    X(CUDA_ERROR_NVLINK_UNCORRECTABLE, 220, "nvlink uncorrectable") \
    X(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, 221, "there is no PTX compiler") \
    X(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222, "the PTX version is newer than the driver") \
    X(CUDA_ERROR_JIT_COMPILATION_DISABLED, 223, "jit compilation disabled") \
    X(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, 224, "unsupported exec affinity") \
    X(CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC, 225, "unsupported devside sync") \
    X(CUDA_ERROR_CONTAINED, 226, "a contained memory error") \
    X(CUDA_ERROR_INVALID_SOURCE, 300, "the source is not valid") \
    X(CUDA_ERROR_FILE_NOT_FOUND, 301, "the file was not found") \
    X(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, 302, "shared object symbol not found") \
    X(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, 303, "shared object init failed") \
    X(CUDA_ERROR_OPERATING_SYSTEM, 304, "a call to the operating system failed") \
    X(CUDA_ERROR_INVALID_HANDLE, 400, "the handle is not valid") \
    X(CUDA_ERROR_ILLEGAL_STATE, 401, "the resource is in the wrong state") \
    X(CUDA_ERROR_LOSSY_QUERY, 402, "lossy query") \
    X(CUDA_ERROR_NOT_FOUND, 500, "the named symbol was not found") \
    X(CUDA_ERROR_NOT_READY, 600, "the work has not finished yet") \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, 700, "a kernel accessed an illegal address") \
    X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701, "the launch asks for more resources than there are") \
    X(CUDA_ERROR_LAUNCH_TIMEOUT, 702, "a kernel ran for too long") \
    X(CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING, 703, "launch incompatible texturing") \
    X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704, "peer access already enabled") \
    X(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, 705, "peer access not enabled") \
    X(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, 708, "the primary context is already active") \
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709, "the context has been destroyed") \
    X(CUDA_ERROR_ASSERT, 710, "an assertion in a kernel failed") \
    X(CUDA_ERROR_TOO_MANY_PEERS, 711, "too many peers") \
    X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712, "host memory already registered") \
    X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, 713, "host memory not registered") \
    X(CUDA_ERROR_HARDWARE_STACK_ERROR, 714, "a kernel overran its call stack") \
    X(CUDA_ERROR_ILLEGAL_INSTRUCTION, 715, "a kernel met an illegal instruction") \
    X(CUDA_ERROR_MISALIGNED_ADDRESS, 716, "a kernel accessed a misaligned address") \
    X(CUDA_ERROR_INVALID_ADDRESS_SPACE, 717, "a kernel used an address of the wrong state space") \
    X(CUDA_ERROR_INVALID_PC, 718, "a kernel jumped outside of its code") \
    X(CUDA_ERROR_LAUNCH_FAILED, 719, "a kernel failed") \
    X(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, 720, "too many blocks for a cooperative launch") \
    X(CUDA_ERROR_TENSOR_MEMORY_LEAK, 721, "tensor memory leak") \
    X(CUDA_ERROR_NOT_PERMITTED, 800, "the call is not permitted") \
    X(CUDA_ERROR_NOT_SUPPORTED, 801, "the call is not supported on this device") \
    X(CUDA_ERROR_SYSTEM_NOT_READY, 802, "the system is not ready") \
    X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803, "driver parts of different versions") \
    X(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, 804, "compat not supported on device") \
    X(CUDA_ERROR_MPS_CONNECTION_FAILED, 805, "mps connection failed") \
    X(CUDA_ERROR_MPS_RPC_FAILURE, 806, "mps rpc failure") \
    X(CUDA_ERROR_MPS_SERVER_NOT_READY, 807, "mps server not ready") \
    X(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, 808, "mps max clients reached") \
    X(CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED, 809, "mps max connections reached") \
    X(CUDA_ERROR_MPS_CLIENT_TERMINATED, 810, "mps client terminated") \
    X(CUDA_ERROR_CDP_NOT_SUPPORTED, 811, "cdp not supported") \
    X(CUDA_ERROR_CDP_VERSION_MISMATCH, 812, "cdp version mismatch") \
    X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900, "stream capture unsupported") \
    X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901, "stream capture invalidated") \
    X(CUDA_ERROR_STREAM_CAPTURE_MERGE, 902, "stream capture merge") \
    X(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, 903, "stream capture unmatched") \
    X(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, 904, "stream capture unjoined") \
    X(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, 905, "stream capture isolation") \
    X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 906, "stream capture implicit") \
    X(CUDA_ERROR_CAPTURED_EVENT, 907, "captured event") \
    X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, 908, "stream capture wrong thread") \
    X(CUDA_ERROR_TIMEOUT, 909, "the call timed out") \
    X(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, 910, "graph exec update failure") \
    X(CUDA_ERROR_EXTERNAL_DEVICE, 911, "an external device failed") \
    X(CUDA_ERROR_INVALID_CLUSTER_SIZE, 912, "the cluster size is not valid") \
    X(CUDA_ERROR_FUNCTION_NOT_LOADED, 913, "function not loaded") \
    X(CUDA_ERROR_INVALID_RESOURCE_TYPE, 914, "invalid resource type") \
    X(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, 915, "invalid resource configuration") \
    X(CUDA_ERROR_KEY_ROTATION, 916, "key rotation") \
    X(CUDA_ERROR_STREAM_DETACHED, 917, "stream detached") \
    X(CUDA_ERROR_UNKNOWN, 999, "unknown error")

#define CUDA_RESULT_NUMBER(name, number, words) name = number,
typedef enum { CUDA_RESULTS(CUDA_RESULT_NUMBER) } CUresult;
#undef CUDA_RESULT_NUMBER

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct {
    char bytes[16];
} CUuuid;

typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUarray_st *CUarray;

/* Handles of streams that nobody created. */
#define CU_STREAM_LEGACY ((CUstream)0x1)
#define CU_STREAM_PER_THREAD ((CUstream)0x2)

enum { /* flags of contexts */
       CU_CTX_SCHED_AUTO = 0x00,
       CU_CTX_SCHED_SPIN = 0x01,
       CU_CTX_SCHED_YIELD = 0x02,
       CU_CTX_SCHED_BLOCKING_SYNC = 0x04,
       CU_CTX_SCHED_MASK = 0x07,
       CU_CTX_MAP_HOST = 0x08,
       CU_CTX_LMEM_RESIZE_TO_MAX = 0x10,
       CU_CTX_FLAGS_MASK = 0xff,
};
enum { CU_STREAM_DEFAULT = 0, CU_STREAM_NON_BLOCKING = 1 };
enum {
    CU_EVENT_DEFAULT = 0,
    CU_EVENT_BLOCKING_SYNC = 1,
    CU_EVENT_DISABLE_TIMING = 2,
    CU_EVENT_INTERPROCESS = 4,
};
typedef enum {
    CU_MEMORYTYPE_HOST = 1,
    CU_MEMORYTYPE_DEVICE = 2,
    CU_MEMORYTYPE_ARRAY = 3,
    CU_MEMORYTYPE_UNIFIED = 4,
} CUmemorytype;
enum { CU_COMPUTEMODE_DEFAULT = 0 };

typedef enum {
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X = 2,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y = 3,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z = 4,
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X = 5,
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y = 6,
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z = 7,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 8,
    CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY = 9,
    CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
    CU_DEVICE_ATTRIBUTE_MAX_PITCH = 11,
    CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK = 12,
    CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13,
    CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT = 14,
    CU_DEVICE_ATTRIBUTE_GPU_OVERLAP = 15,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT = 17,
    CU_DEVICE_ATTRIBUTE_INTEGRATED = 18,
    CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY = 19,
    CU_DEVICE_ATTRIBUTE_COMPUTE_MODE = 20,
    CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS = 31,
    CU_DEVICE_ATTRIBUTE_ECC_ENABLED = 32,
    CU_DEVICE_ATTRIBUTE_PCI_BUS_ID = 33,
    CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID = 34,
    CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36,
    CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37,
    CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
    CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT = 40,
    CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING = 41,
    CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID = 50,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED = 78,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
    CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR = 82,
    CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY = 83,
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS = 88,
    CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS = 89,
    CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM = 91,
    CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1 = 92,
    CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1 = 93,
    CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1 = 94,
    CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH = 95,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES = 100,
    CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST = 101,
    CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED = 103,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR = 106,
    CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED = 116,
    CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES = 119,
    CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH = 120,
    CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS = 122,
    CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR = 123,
    CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED = 124,
    CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED = 125,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED = 128,
    CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED = 132,
    CU_DEVICE_ATTRIBUTE_MAX = 149, /* numbers from here on are not known */
} CUdevice_attribute;

typedef enum {
    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
    CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES = 2,
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
    CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
    CU_FUNC_ATTRIBUTE_PTX_VERSION = 5,
    CU_FUNC_ATTRIBUTE_BINARY_VERSION = 6,
    CU_FUNC_ATTRIBUTE_CACHE_MODE_CA = 7,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT = 9,
    CU_FUNC_ATTRIBUTE_CLUSTER_FIRST = 10, /* these are ours: all between them concern clusters */
    CU_FUNC_ATTRIBUTE_CLUSTER_LAST = 17,
} CUfunction_attribute;

typedef enum {
    CU_POINTER_ATTRIBUTE_CONTEXT = 1,
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
    CU_POINTER_ATTRIBUTE_DEVICE_POINTER = 3,
    CU_POINTER_ATTRIBUTE_HOST_POINTER = 4,
    CU_POINTER_ATTRIBUTE_SYNC_MEMOPS = 6,
    CU_POINTER_ATTRIBUTE_BUFFER_ID = 7,
    CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
    CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE = 10,
    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
    CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
    CU_POINTER_ATTRIBUTE_MAPPED = 13,
    CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES = 14,
    CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE = 15,
    CU_POINTER_ATTRIBUTE_ACCESS_FLAGS = 16,
    CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE = 17,
} CUpointer_attribute;

typedef enum {
    CU_JIT_MAX_REGISTERS = 0,
    CU_JIT_WALL_TIME = 2,
    CU_JIT_INFO_LOG_BUFFER = 3,
    CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES = 4,
    CU_JIT_ERROR_LOG_BUFFER = 5,
    CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,
} CUjit_option;

typedef enum { CU_MODULE_EAGER_LOADING = 1, CU_MODULE_LAZY_LOADING = 2 } CUmoduleLoadingMode;

typedef enum {
    CU_GET_PROC_ADDRESS_SUCCESS = 0,
    CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1,
    CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT = 2,
} CUdriverProcAddressQueryResult;
enum {
    CU_GET_PROC_ADDRESS_DEFAULT = 0,
    CU_GET_PROC_ADDRESS_LEGACY_STREAM = 1,
    CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM = 2,
};

/* Parameters of cuCtxCreate_v3 and _v4 that are not supported: only "none" is accepted. */
typedef struct CUexecAffinityParam_st CUexecAffinityParam;
typedef struct {
    CUexecAffinityParam *execAffinityParams;
    int numExecAffinityParams;
    void *cigParams;
} CUctxCreateParams;

typedef enum {
    CU_LAUNCH_ATTRIBUTE_IGNORE = 0,
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 2,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4,
    CU_LAUNCH_ATTRIBUTE_PRIORITY = 8,
} CUlaunchAttributeID;
typedef struct {
    CUlaunchAttributeID id;
    char pad[4];
    union {
        char bytes[64];
        int cooperative;
        int priority;
    } value;
} CUlaunchAttribute;
typedef struct {
    unsigned int gridDimX, gridDimY, gridDimZ;
    unsigned int blockDimX, blockDimY, blockDimZ;
    unsigned int sharedMemBytes;
    CUstream hStream;
    CUlaunchAttribute *attrs;
    unsigned int numAttrs;
} CUlaunchConfig;

typedef struct { /* a descriptor of a tensor, as the driver encodes it */
    _Alignas(64) cuuint64_t opaque[16];
} CUtensorMap;
typedef int CUlimit; /* which one: none is supported */
typedef enum {
    CU_STREAM_CAPTURE_STATUS_NONE = 0,
    CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
    CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2,
} CUstreamCaptureStatus;
typedef enum {
    CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
    CU_STREAM_CAPTURE_MODE_RELAXED = 2,
} CUstreamCaptureMode;
typedef struct CUgraphEdgeData_st CUgraphEdgeData; /* of edges that are not ordinary ones: none is supported */

/* Libraries, pools and host functions. */
typedef enum {
    CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE = 0,
    CU_LIBRARY_BINARY_IS_PRESERVED = 1,
} CUlibraryOption;
typedef void (*CUhostFn)(void *data);
typedef void (*CUstreamCallback)(CUstream stream, CUresult status, void *data);
typedef size_t (*CUoccupancyB2DSize)(int block_size);
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef enum {
    CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES = 1,
    CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC = 2,
    CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3,
    CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4,
    CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5,
    CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH = 6,
    CU_MEMPOOL_ATTR_USED_MEM_CURRENT = 7,
    CU_MEMPOOL_ATTR_USED_MEM_HIGH = 8,
} CUmemPool_attribute;
typedef struct {
    int type; /* 1: a device, whose number is id */
    int id;
} CUmemLocation;
typedef struct {
    CUmemLocation location;
    int flags; /* 0: none, 1: read, 3: read and write */
} CUmemAccessDesc;
typedef struct {
    int allocType;   /* 1: memory that stays where it is */
    int handleTypes; /* 0: not for other processes */
    CUmemLocation location;
    void *win32SecurityAttributes;
    size_t maxSize; /* 0: no limit */
    unsigned short usage;
    unsigned char reserved[54];
} CUmemPoolProps;

/* Nodes of a graph. */
typedef enum {
    CU_GRAPH_NODE_TYPE_KERNEL = 0,
    CU_GRAPH_NODE_TYPE_MEMCPY = 1,
    CU_GRAPH_NODE_TYPE_MEMSET = 2,
    CU_GRAPH_NODE_TYPE_HOST = 3,
    CU_GRAPH_NODE_TYPE_EMPTY = 5,
} CUgraphNodeType;
enum { /* flags of cuGraphInstantiateWithFlags */
       CU_GRAPH_INSTANTIATE_AUTO_FREE_ON_LAUNCH = 1,
       CU_GRAPH_INSTANTIATE_UPLOAD = 2,
       CU_GRAPH_INSTANTIATE_DEVICE_LAUNCH = 4,
       CU_GRAPH_INSTANTIATE_USE_NODE_PRIORITY = 8,
};
typedef struct {
    CUfunction func;
    unsigned int gridDimX, gridDimY, gridDimZ;
    unsigned int blockDimX, blockDimY, blockDimZ;
    unsigned int sharedMemBytes;
    void **kernelParams;
    void **extra;
} CUDA_KERNEL_NODE_PARAMS_v1;
typedef struct { /* that of CUDA 12 begins as the older one does */
    CUDA_KERNEL_NODE_PARAMS_v1 launch;
    CUkernel kern;
    CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS_v2;
typedef struct {
    CUdeviceptr dst;
    size_t pitch;
    unsigned int value;
    unsigned int elementSize;
    size_t width; /* in elements */
    size_t height;
} CUDA_MEMSET_NODE_PARAMS;
typedef struct {
    CUhostFn fn;
    void *userData;
} CUDA_HOST_NODE_PARAMS_v1;
typedef struct {
    size_t srcXInBytes, srcY, srcZ, srcLOD;
    CUmemorytype srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    CUarray srcArray;
    void *reserved0;
    size_t srcPitch, srcHeight;
    size_t dstXInBytes, dstY, dstZ, dstLOD;
    CUmemorytype dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    CUarray dstArray;
    void *reserved1;
    size_t dstPitch, dstHeight;
    size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D;

/* Keys of the `extra` array of a launch. */
#define CU_LAUNCH_PARAM_END ((void *)0x00)
#define CU_LAUNCH_PARAM_BUFFER_POINTER ((void *)0x01)
#define CU_LAUNCH_PARAM_BUFFER_SIZE ((void *)0x02)

#endif
