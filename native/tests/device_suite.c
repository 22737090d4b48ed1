/* The software device driven from C: memory, contexts, streams, errors, kernels of native/kernels, hostile PTX.
 *
 * device_suite KERNEL_FOLDER: prints each check that fails and ends with 1, else prints "device suite: N checks".
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALLS_EXPORTED
#include "cuda_calls.h"

static _Atomic int failures, checks;
static char folder[512];

#define EXPECT(wanted, call) expect_result((wanted), (call), #call, __LINE__)
#define CHECK(condition) expect_true((condition), #condition, __LINE__)

static void expect_true(int holds, const char *what, int line)
{
    checks++;
    if (!holds) {
        failures++;
        printf("line %d: %s\n", line, what);
    }
}

static void expect_result(CUresult wanted, CUresult got, const char *what, int line)
{
    checks++;
    if (got != wanted) {
        const char *name = "?";
        cuGetErrorName(got, &name);
        failures++;
        printf("line %d: %s gave %s, not %d\n", line, what, name, (int)wanted);
    }
}

static char *read_ptx(const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s.ptx", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(2);
    }
    fseek(file, 0, SEEK_END);
    size_t bytes = (size_t)ftell(file);
    rewind(file);
    char *text = calloc(1, bytes + 1);
    if (!text || fread(text, 1, bytes, file) != bytes)
        exit(2);
    fclose(file);
    return text;
}

static CUmodule load(const char *name)
{
    CUmodule module = NULL;
    char *text = read_ptx(name);
    EXPECT(CUDA_SUCCESS, cuModuleLoadData(&module, text));
    free(text);
    return module;
}

static CUfunction kernel(CUmodule module, const char *name)
{
    CUfunction function = NULL;
    EXPECT(CUDA_SUCCESS, cuModuleGetFunction(&function, module, name));
    return function;
}

static CUdeviceptr filled(const void *from, size_t bytes)
{
    CUdeviceptr to = 0;
    EXPECT(CUDA_SUCCESS, cuMemAlloc_v2(&to, bytes));
    EXPECT(CUDA_SUCCESS, cuMemcpyHtoD_v2(to, from, bytes));
    return to;
}

static CUcontext fresh_context(void)
{
    CUcontext context = NULL;
    EXPECT(CUDA_SUCCESS, cuCtxCreate_v2(&context, CU_CTX_SCHED_BLOCKING_SYNC, 0));
    return context;
}

static void before_init(void)
{
    int count;
    CUdeviceptr pointer;
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc_v2(&pointer, 16));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuInit(1));
    EXPECT(CUDA_SUCCESS, cuInit(0));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&pointer, 16));
}

static void memory(void)
{
    enum { BLOCKS = 500 };
    CUcontext context = fresh_context();
    CUdeviceptr blocks[BLOCKS], pointer;
    size_t free_before, free_after, total;
    char bytes[64];
    EXPECT(CUDA_SUCCESS, cuMemGetInfo_v2(&free_before, &total));
    unsigned seed = 7;
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            seed = seed * 1664525u + 1013904223u;
            size_t size = 1 + seed % 5000;
            EXPECT(CUDA_SUCCESS, cuMemAlloc_v2(&blocks[i], size));
            CHECK(blocks[i] % 256 == 0);
            EXPECT(CUDA_SUCCESS, cuMemsetD8_v2(blocks[i], 0xff, size));
            EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(blocks[i], 0, size + 1));
        }
        for (int i = 0; i < BLOCKS; i++) /* in another order than they came */
            EXPECT(CUDA_SUCCESS, cuMemFree_v2(blocks[(i * 37 + round) % BLOCKS]));
    }
    EXPECT(CUDA_SUCCESS, cuMemGetInfo_v2(&free_after, &total));
    CHECK(free_before == free_after);
    EXPECT(CUDA_SUCCESS, cuMemAlloc_v2(&pointer, 64)); /* what others wrote is not there */
    EXPECT(CUDA_SUCCESS, cuMemcpyDtoH_v2(bytes, pointer, 64));
    for (int i = 0; i < 64; i++)
        CHECK(bytes[i] == 0);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(bytes, pointer + 1, 64));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(bytes, pointer - 1, 2));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(bytes, pointer, SIZE_MAX));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(bytes, 0x1234, 4));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2((CUdeviceptr)(uintptr_t)bytes, bytes, 4));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(pointer, 0, SIZE_MAX / 2));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(pointer + 2, 0, 1));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(pointer + 256));
    EXPECT(CUDA_SUCCESS, cuMemFree_v2(pointer));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(pointer));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&pointer, total + 1));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&pointer, SIZE_MAX));
    EXPECT(CUDA_SUCCESS, cuMemAlloc_v2(&pointer, total)); /* joined again: one block of the whole device fits */
    EXPECT(CUDA_SUCCESS, cuCtxDestroy_v2(context));
}

static void contexts(void)
{
    CUcontext first = fresh_context(), second = fresh_context(), popped;
    CUdeviceptr pointer;
    CUstream stream;
    char byte;
    EXPECT(CUDA_SUCCESS, cuMemAlloc_v2(&pointer, 16));
    EXPECT(CUDA_SUCCESS, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT(CUDA_SUCCESS, cuCtxPopCurrent_v2(&popped));
    CHECK(popped == second);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(&byte, pointer, 1)); /* memory of the other context */
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(pointer));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
    EXPECT(CUDA_SUCCESS, cuCtxDestroy_v2(second));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(second));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent(second));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
    EXPECT(CUDA_SUCCESS, cuCtxDestroy_v2(first));
    EXPECT(CUDA_SUCCESS, cuDevicePrimaryCtxRetain(&first, 0));
    EXPECT(CUDA_SUCCESS, cuDevicePrimaryCtxRetain(&second, 0));
    CHECK(first == second);
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(first));
    EXPECT(CUDA_SUCCESS, cuCtxSetCurrent(first));
    EXPECT(CUDA_SUCCESS, cuMemAlloc_v2(&pointer, 16));
    EXPECT(CUDA_SUCCESS, cuDevicePrimaryCtxRelease_v2(0));
    EXPECT(CUDA_SUCCESS, cuCtxSynchronize());
    EXPECT(CUDA_SUCCESS, cuDevicePrimaryCtxRelease_v2(0));
    EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize());
    EXPECT(CUDA_SUCCESS, cuCtxSetCurrent(NULL));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
}

static void streams(void)
{
    CUcontext context = fresh_context();
    CUstream stream;
    CUevent start, end;
    float milliseconds;
    void *pinned;
    EXPECT(CUDA_SUCCESS, cuStreamCreateWithPriority(&stream, CU_STREAM_DEFAULT, -1));
    EXPECT(CUDA_SUCCESS, cuEventCreate(&start, CU_EVENT_DEFAULT));
    EXPECT(CUDA_SUCCESS, cuEventCreate(&end, CU_EVENT_BLOCKING_SYNC));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime_v2(&milliseconds, start, end));
    EXPECT(CUDA_SUCCESS, cuEventRecord(start, stream));
    EXPECT(CUDA_SUCCESS, cuMemAllocHost_v2(&pinned, 1 << 20));
    CUdeviceptr pointer = filled(pinned, 1 << 20);
    EXPECT(CUDA_SUCCESS, cuMemcpyHtoDAsync_v2(pointer, pinned, 1 << 20, stream));
    EXPECT(CUDA_SUCCESS, cuEventRecord(end, stream));
    EXPECT(CUDA_SUCCESS, cuStreamWaitEvent(NULL, end, 0));
    EXPECT(CUDA_SUCCESS, cuEventSynchronize(end));
    EXPECT(CUDA_SUCCESS, cuEventElapsedTime_v2(&milliseconds, start, end));
    CHECK(milliseconds > 0);
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventRecord((CUevent)stream, stream));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize((CUstream)(uintptr_t)0xdead));
    EXPECT(CUDA_SUCCESS, cuEventDestroy_v2(start));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy_v2(start));
    EXPECT(CUDA_SUCCESS, cuMemFreeHost(pinned));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(pinned));
    EXPECT(CUDA_SUCCESS, cuCtxDestroy_v2(context)); /* frees the stream and the other event */
}

static void vector_add(void)
{
    enum { N = 1000 };
    float a[N], b[N], out[N];
    int n = N;
    CUcontext context = fresh_context();
    CUfunction function = kernel(load("vector"), "vector_add");
    for (int i = 0; i < N; i++)
        a[i] = (float)i, b[i] = (float)(i * i) / 7;
    CUdeviceptr pa = filled(a, sizeof a), pb = filled(b, sizeof b), po = filled(b, sizeof b);
    void *parameters[] = {&pa, &pb, &po, &n};
    EXPECT(CUDA_SUCCESS, cuLaunchKernel(function, 8, 1, 1, 128, 1, 1, 0, NULL, parameters, NULL));
    EXPECT(CUDA_SUCCESS, cuMemcpyDtoH_v2(out, po, sizeof out));
    for (int i = 0; i < N; i++)
        CHECK(out[i] == a[i] + b[i]);
    struct {
        CUdeviceptr a, b, out;
        int n;
    } packed = {pa, pb, pa, N};
    size_t bytes = 28;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    CUlaunchConfig config = {8, 1, 1, 128, 1, 1, 0, NULL, NULL, 0};
    EXPECT(CUDA_SUCCESS, cuLaunchKernelEx(&config, function, NULL, extra));
    bytes = 20;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernelEx(&config, function, NULL, extra));
    EXPECT(CUDA_SUCCESS, cuMemcpyDtoH_v2(out, pa, sizeof out));
    CHECK(out[999] == a[999] + b[999]);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(function, 0, 1, 1, 128, 1, 1, 0, NULL, parameters, NULL));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(function, 1, 1, 1, 2048, 1, 1, 0, NULL, parameters, NULL));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 1 << 20, NULL, parameters, NULL));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    EXPECT(CUDA_SUCCESS, cuCtxDestroy_v2(context));
}

/* A graph that adds a and b into out and copies out to a, launched twice with another b. */
static void graphs(void)
{
    enum { N = 256 };
    float a[N], b[N], c[N], out[N];
    int n = N;
    CUcontext context = fresh_context();
    CUlibrary library;
    CUkernel of_library;
    char *text = read_ptx("vector");
    EXPECT(CUDA_SUCCESS, cuLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0));
    free(text);
    EXPECT(CUDA_SUCCESS, cuLibraryGetKernel(&of_library, library, "vector_add"));
    for (int i = 0; i < N; i++)
        a[i] = 1, b[i] = (float)i, c[i] = 2;
    CUdeviceptr pa = filled(a, sizeof a), pb = filled(b, sizeof b), pc = filled(c, sizeof c), po = filled(c, sizeof c);
    void *parameters[] = {&pa, &pb, &po, &n};
    CUDA_KERNEL_NODE_PARAMS_v2 add = {{NULL, 2, 1, 1, 128, 1, 1, 0, parameters, NULL}, of_library, context};
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = po,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = pa,
                          .WidthInBytes = sizeof a,
                          .Height = 1,
                          .Depth = 1};
    CUgraph graph;
    CUgraphNode first, second;
    CUgraphExec exec;
    EXPECT(CUDA_SUCCESS, cuGraphCreate(&graph, 0));
    EXPECT(CUDA_SUCCESS, cuGraphAddKernelNode_v2(&first, graph, NULL, 0, &add));
    EXPECT(CUDA_SUCCESS, cuGraphAddMemcpyNode(&second, graph, &first, 1, &copy, context));
    EXPECT(CUDA_SUCCESS, cuGraphInstantiateWithFlags(&exec, graph, 0));
    EXPECT(CUDA_SUCCESS, cuGraphLaunch(exec, NULL));
    parameters[1] = &pc;
    EXPECT(CUDA_SUCCESS, cuGraphExecKernelNodeSetParams_v2(exec, first, &add));
    EXPECT(CUDA_SUCCESS, cuGraphLaunch(exec, NULL));
    EXPECT(CUDA_SUCCESS, cuMemcpyDtoH_v2(out, pa, sizeof out));
    for (int i = 0; i < N; i++)
        CHECK(out[i] == 1 + b[i] + 2);
    EXPECT(CUDA_SUCCESS, cuGraphDestroy(graph));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphExecKernelNodeSetParams_v2(exec, first, &add));
    EXPECT(CUDA_SUCCESS, cuGraphExecDestroy(exec));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, NULL));
    EXPECT(CUDA_SUCCESS, cuLibraryUnload(library));
    EXPECT(CUDA_SUCCESS, cuCtxDestroy_v2(context));
}

/* Every kernel of a file once, with pointers that are good, to let the sanitizers see all instructions. */
static void run_all(const char *file, unsigned threads)
{
    static const char *const NAMES[] = {"touch",
                                        "matmul",
                                        "matmul_dynamic",
                                        "block_sum",
                                        "shuffle_sum",
                                        "transpose",
                                        "histogram_global",
                                        "histogram_shared",
                                        "constants",
                                        "integers",
                                        "longs",
                                        "doubles",
                                        "maths",
                                        "device_function",
                                        "local_array",
                                        "choose",
                                        "votes",
                                        "vector_add4",
                                        "saxpy"};
    CUcontext context = fresh_context();
    CUmodule module = load(file);
    CUdeviceptr memory_[7];
    for (int i = 0; i < 7; i++) {
        EXPECT(CUDA_SUCCESS, cuMemAlloc_v2(&memory_[i], 1 << 20));
        EXPECT(CUDA_SUCCESS, cuMemsetD32_v2(memory_[i], 1, 1 << 18));
    }
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        CUfunction function;
        uint64_t small = 48;
        if (cuModuleGetFunction(&function, module, NAMES[i]) != CUDA_SUCCESS)
            continue;
        void *parameters[8];
        size_t offset, bytes, pointers = 0;
        float scale = 2;
        for (size_t p = 0; cuFuncGetParamInfo(function, p, &offset, &bytes) == CUDA_SUCCESS; p++)
            parameters[p] = bytes == 8 ? (void *)&memory_[pointers++] : (void *)&small;
        if (strcmp(NAMES[i], "saxpy") == 0)
            parameters[0] = &scale, parameters[3] = &small;
        unsigned y = strncmp(NAMES[i], "matmul", 6) == 0 ? 16 : 1, x = y == 1 ? threads : 16;
        EXPECT(CUDA_SUCCESS, cuLaunchKernel(function, 2, 1, 1, x, y, 1, 8192, NULL, parameters, NULL));
        EXPECT(CUDA_SUCCESS, cuCtxSynchronize());
    }
    EXPECT(CUDA_SUCCESS, cuModuleUnload(module));
    EXPECT(CUDA_SUCCESS, cuCtxDestroy_v2(context));
}

static void faults(void)
{
    static const long long OFFSETS[] = {1000, -1, 1LL << 40, -(1LL << 61), 1LL << 58, (1LL << 60) / 4 * 3};
    for (size_t i = 0; i < sizeof OFFSETS / sizeof *OFFSETS; i++) {
        CUcontext context = fresh_context();
        CUfunction function = kernel(load("language"), "bad_address");
        CUdeviceptr pointer;
        long long offset = OFFSETS[i];
        void *parameters[] = {&pointer, &offset};
        EXPECT(CUDA_SUCCESS, cuMemAlloc_v2(&pointer, 4000));
        EXPECT(CUDA_SUCCESS, cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
        EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
        EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc_v2(&pointer, 16));
        EXPECT(CUDA_SUCCESS, cuCtxDestroy_v2(context));
    }
    CUcontext context = fresh_context(); /* another context is not touched by it */
    EXPECT(CUDA_SUCCESS, cuCtxSynchronize());
    EXPECT(CUDA_SUCCESS, cuCtxDestroy_v2(context));
}

static CUresult try_ptx(const char *text, char *log, size_t bytes)
{
    CUmodule module;
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)(uintptr_t)bytes};
    log[0] = '\0';
    CUresult result = cuModuleLoadDataEx(&module, text, 2, options, values);
    if (result == CUDA_SUCCESS)
        cuModuleUnload(module);
    return result;
}

#define HEAD ".version 8.0\n.target sm_75\n.address_size 64\n"
static void refusals(void)
{
    char log[256];
    CUcontext context = fresh_context();
    EXPECT(CUDA_ERROR_INVALID_PTX, try_ptx(HEAD ".visible .entry k(){ frobnicate.u32 %r1, %r2; }", log, sizeof log));
    CHECK(strstr(log, "frobnicate.u32") != NULL);
    EXPECT(CUDA_ERROR_INVALID_PTX, try_ptx(HEAD ".visible .entry k(){ add.weird.f32 %f1, %f2, %f3; }", log, 8));
    CHECK(strlen(log) < 8);
    static const char *const BAD[] = {
        HEAD ".entry k(",
        HEAD ".entry k(){",
        HEAD ".entry k(){ .reg .b32 %r<99999999>; }",
        HEAD "}",
        HEAD "{{{{{{",
        HEAD ".entry k(){ .reg .b32 %r<4>; bra nowhere; }",
        HEAD ".entry k(){ mov.u32 %r1, 1; }",
        HEAD ".entry k(){ .reg .b32 %r<4>; ld.global.u32 %r1, [%r2; }",
        HEAD ".global .b8 x[99999999999];",
        HEAD ".global .u32 x = {1,2};",
        HEAD ".global .b8 x[4] = {{{1,2,3,4,5}}};",
        HEAD ".entry k(){ .local .align 8 .b8 d[99999999]; }",
        HEAD ".entry k(.param .b8 a[60000]){ ret; }",
        HEAD ".entry k(){ @%p1 ret; }",
        HEAD ".entry",
        HEAD ".entry k(){ .reg .b32 %r<4>; .reg .b64 %d<2>; add.s32 %r1, %d1, 2; }",
        HEAD ".entry k(){ x: x: ret; }",
        HEAD ".entry k(){ .reg .b32 %r<3>; mov.b32 {%r1,%r2}, %r1; }",
        HEAD "\"unclosed",
        HEAD ".file",
        HEAD ".loc",
    };
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++)
        CHECK(try_ptx(BAD[i], log, sizeof log) != CUDA_SUCCESS || strstr(BAD[i], ".file") != NULL);
    EXPECT(CUDA_ERROR_INVALID_IMAGE,
           try_ptx("this is not PTX", log, sizeof log) == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE);
    EXPECT(CUDA_ERROR_NO_BINARY_FOR_GPU, try_ptx("\x7f"
                                                 "ELF",
                                                 log, sizeof log));
    EXPECT(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, try_ptx(".version 99.0\n", log, sizeof log));
    EXPECT(CUDA_ERROR_NO_BINARY_FOR_GPU, try_ptx(".version 8.0\n.target sm_100\n", log, sizeof log));
    EXPECT(CUDA_SUCCESS, cuCtxDestroy_v2(context));
}

/* Every PTX file cut off at many places, and with bytes changed: any answer is right, a crash is not. */
static void damaged(const char *name)
{
    char log[64];
    CUcontext context = fresh_context();
    char *text = read_ptx(name);
    size_t length = strlen(text);
    unsigned seed = 1;
    for (size_t i = 0; i < 300; i++) {
        char *copy = strdup(text);
        seed = seed * 1664525u + 1013904223u;
        size_t at = (seed >> 3) % length;
        if (i % 2)
            copy[at] = '\0';
        else
            copy[at] = ";{}[]<>.,%$@!19xA\""[seed >> 28];
        try_ptx(copy, log, sizeof log);
        free(copy);
    }
    free(text);
    checks++;
    EXPECT(CUDA_SUCCESS, cuCtxDestroy_v2(context));
}

static void *tenant(void *unused)
{
    (void)unused;
    for (int i = 0; i < 20; i++) {
        vector_add();
        graphs();
    }
    return NULL;
}

static void threads(void)
{
    pthread_t ids[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&ids[i], NULL, tenant, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(ids[i], NULL);
}

int main(int count, char **arguments)
{
    if (count != 2) {
        fprintf(stderr, "usage: device_suite KERNEL_FOLDER\n");
        return 2;
    }
    snprintf(folder, sizeof folder, "%s", arguments[1]);
    before_init();
    memory();
    contexts();
    streams();
    vector_add();
    graphs();
    static const char *const FILES[] = {"micro", "vector", "matmul", "reduce", "transpose", "histogram", "language"};
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        run_all(FILES[i], 64);
        run_all(FILES[i], 37); /* warps with lanes missing */
        damaged(FILES[i]);
    }
    faults();
    refusals();
    threads();
    printf("device suite: %d checks, %d failed\n", checks, failures);
    return failures ? 1 : 0;
}
