/* `byte_digest LIBCUDA PTX`: copies of many sizes and a kernel on the given libcuda.so.1; prints a digest of every byte that
 * came back, so that two libraries can be compared where there is no Python. PTX is kernels/vector.ptx. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALLS_EXPORTED
#include "cuda_calls.h"

enum { MOST = 20000000, FLOATS = 100000, THREADS = 256 };

#define FUNCTIONS(F) \
    F(cuInit) \
    F(cuDeviceGet) \
    F(cuCtxCreate_v2) \
    F(cuCtxSynchronize) \
    F(cuMemAlloc_v2) \
    F(cuMemFree_v2) \
    F(cuMemcpyHtoD_v2) \
    F(cuMemcpyDtoH_v2) \
    F(cuModuleLoadData) \
    F(cuModuleGetFunction) \
    F(cuLaunchKernel)

static struct {
#define DECLARE(name) __typeof__(&name) name;
    FUNCTIONS(DECLARE)
} cuda;

static void need(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "byte_digest: %s: CUDA error %d\n", what, (int)result);
    exit(1);
}
#define NEED(call) need(cuda.call, #call)

static unsigned long long digest(const unsigned char *bytes, size_t count)
{
    unsigned long long sum = 14695981039346656037u;
    for (size_t i = 0; i < count; i++)
        sum = (sum ^ bytes[i]) * 1099511628211u;
    return sum;
}

static void copies(unsigned char *out, unsigned char *back)
{
    static const size_t sizes[] = {1, 7, 4095, 4096, 65537, 1000003, 8 << 20, MOST};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CUdeviceptr memory;
        for (size_t at = 0; at < sizes[i]; at++)
            out[at] = (unsigned char)(at * 2654435761u >> (8 + i));
        memset(back, 0, sizes[i]);
        NEED(cuMemAlloc_v2(&memory, sizes[i]));
        NEED(cuMemcpyHtoD_v2(memory, out, sizes[i]));
        NEED(cuMemcpyDtoH_v2(back, memory, sizes[i]));
        NEED(cuMemFree_v2(memory));
        printf("copy %zu %016llx %s\n", sizes[i], digest(back, sizes[i]),
               memcmp(out, back, sizes[i]) == 0 ? "equal" : "DIFFERENT");
    }
}

static void kernel(const char *ptx, float *values, float *back)
{
    CUmodule module;
    CUfunction add;
    CUdeviceptr a, b, sum;
    int count = FLOATS;
    size_t bytes = FLOATS * sizeof(float);
    for (int i = 0; i < FLOATS; i++)
        values[i] = (float)i / 3;
    NEED(cuModuleLoadData(&module, ptx));
    NEED(cuModuleGetFunction(&add, module, "vector_add"));
    NEED(cuMemAlloc_v2(&a, bytes));
    NEED(cuMemAlloc_v2(&b, bytes));
    NEED(cuMemAlloc_v2(&sum, bytes));
    NEED(cuMemcpyHtoD_v2(a, values, bytes));
    NEED(cuMemcpyHtoD_v2(b, values, bytes));
    void *parameters[] = {&a, &b, &sum, &count};
    NEED(cuLaunchKernel(add, (FLOATS + THREADS - 1) / THREADS, 1, 1, THREADS, 1, 1, 0, NULL, parameters, NULL));
    NEED(cuCtxSynchronize());
    NEED(cuMemcpyDtoH_v2(back, sum, bytes));
    printf("vector_add %016llx\n", digest((unsigned char *)back, bytes));
}

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 1 << 20);
    if (file == NULL || text == NULL || fread(text, 1, (1 << 20) - 1, file) == 0) {
        perror(path);
        exit(1);
    }
    fclose(file);
    return text;
}

int main(int count, char **words)
{
    CUdevice device;
    CUcontext context;
    void *library = count == 3 ? dlopen(words[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL) {
        fprintf(stderr, "usage: byte_digest LIBCUDA PTX: %s\n", count == 3 ? dlerror() : "");
        return 2;
    }
#define FIND(name) \
    *(void **)&cuda.name = dlsym(library, #name); \
    if (cuda.name == NULL) \
        return 1;
    FUNCTIONS(FIND)
    unsigned char *out = malloc(MOST), *back = malloc(MOST);
    if (out == NULL || back == NULL)
        return 1;
    NEED(cuInit(0));
    NEED(cuDeviceGet(&device, 0));
    NEED(cuCtxCreate_v2(&context, 0, device));
    copies(out, back);
    kernel(read_text(words[2]), (float *)(void *)out, (float *)(void *)back);
    return 0;
}
