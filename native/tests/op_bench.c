/* Measures operations on the libcuda.so.1 that it is given and prints one JSON object: op_bench LIBCUDA PTX [SECONDS [WHAT]].
 *
 * An operation is two copies of 4 KiB to the device, a launch, a synchronisation and a copy of 4 KiB back. WHAT is any of
 * "op", "call" (an answered call that does nothing), "launch" (what a launch takes before it returns, with the device
 * idle at its start), "copy" (100 MB each way), joined by commas; default all but "launch". */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CALLS_EXPORTED
#include "cuda_calls.h"

enum { SMALL = 4096, LARGE = 100000000, SAMPLES_MOST = 1 << 22, COPIES_MOST = 1000, LAUNCHES = 16 };

#define FUNCTIONS(F) \
    F(cuInit) \
    F(cuDeviceGet) \
    F(cuDeviceGetName) \
    F(cuCtxCreate_v2) \
    F(cuCtxDestroy_v2) \
    F(cuCtxSynchronize) \
    F(cuMemAlloc_v2) \
    F(cuMemcpyHtoD_v2) \
    F(cuMemcpyDtoH_v2) \
    F(cuModuleLoadData) \
    F(cuModuleGetFunction) \
    F(cuLaunchKernel) \
    F(cuMemFree_v2)

static struct {
#define DECLARE(name) __typeof__(&name) name;
    FUNCTIONS(DECLARE)
} cuda;

static void need(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "op_bench: %s: CUDA error %d\n", what, (int)result);
    exit(1);
}
#define NEED(call) need(cuda.call, #call)

static void open_library(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "op_bench: %s\n", dlerror());
        exit(1);
    }
#define FIND(name) \
    *(void **)&cuda.name = dlsym(library, #name); \
    if (cuda.name == NULL) { \
        fprintf(stderr, "op_bench: %s has no %s\n", path, #name); \
        exit(1); \
    }
    FUNCTIONS(FIND)
}

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        exit(1);
    }
    fseek(file, 0, SEEK_END);
    long bytes = ftell(file);
    rewind(file);
    char *text = calloc(1, (size_t)bytes + 1);
    if (text == NULL || fread(text, 1, (size_t)bytes, file) != (size_t)bytes)
        exit(1);
    fclose(file);
    return text;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_samples(const char *name, double *samples, size_t count, double seconds)
{
    double sum = 0;
    for (size_t at = 0; at < count; at++)
        sum += samples[at];
    qsort(samples, count, sizeof *samples, by_value);
    printf(", \"%s\": {\"count\": %zu, \"per_s\": %.1f, \"mean_us\": %.3f, \"p50_us\": %.3f, \"p90_us\": %.3f, "
           "\"p99_us\": %.3f}",
           name, count, (double)count / seconds, sum / (double)count * 1e6, samples[count / 2] * 1e6,
           samples[count * 9 / 10] * 1e6, samples[count * 99 / 100] * 1e6);
}

static double *samples;

static void measure_op(const char *ptx, double seconds)
{
    CUmodule module;
    CUfunction touch;
    CUdeviceptr out, a, b;
    static float first[SMALL / 4], second[SMALL / 4], result[SMALL / 4];
    float scale = 2;
    NEED(cuModuleLoadData(&module, ptx));
    NEED(cuModuleGetFunction(&touch, module, "touch"));
    NEED(cuMemAlloc_v2(&out, SMALL));
    NEED(cuMemAlloc_v2(&a, SMALL));
    NEED(cuMemAlloc_v2(&b, SMALL));
    void *parameters[] = {&out, &a, &b, &scale};
    size_t count = 0;
    double begun = now(), last = begun;
    for (size_t round = 0; last - begun < seconds && count < SAMPLES_MOST; round++) {
        first[round % (SMALL / 4)] = (float)round;
        NEED(cuMemcpyHtoD_v2(a, first, SMALL));
        NEED(cuMemcpyHtoD_v2(b, second, SMALL));
        NEED(cuLaunchKernel(touch, 4, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL));
        NEED(cuCtxSynchronize());
        NEED(cuMemcpyDtoH_v2(result, out, SMALL));
        double ended = now();
        samples[count++] = ended - last;
        last = ended;
        if (memcmp(&result[round % (SMALL / 4)], &(float){(float)round * 2}, sizeof(float)) != 0) {
            fprintf(stderr, "op_bench: wrong result in round %zu\n", round);
            exit(1);
        }
    }
    print_samples("op", samples, count, last - begun);
}

static void measure_call(double seconds)
{
    size_t count = 0;
    double begun = now(), last = begun;
    while (last - begun < seconds && count < SAMPLES_MOST) {
        NEED(cuCtxSynchronize());
        double ended = now();
        samples[count++] = ended - last;
        last = ended;
    }
    print_samples("call", samples, count, last - begun);
}

/* A sample is the mean of a few launches in a row, which must not fill the ring: then the device would be measured. */
static void measure_launch(const char *ptx, double seconds)
{
    CUmodule module;
    CUfunction touch;
    CUdeviceptr memory;
    float scale = 2;
    NEED(cuModuleLoadData(&module, ptx));
    NEED(cuModuleGetFunction(&touch, module, "touch"));
    NEED(cuMemAlloc_v2(&memory, SMALL));
    void *parameters[] = {&memory, &memory, &memory, &scale};
    size_t count = 0;
    double begun = now(), ended = begun;
    while (ended - begun < seconds && count < SAMPLES_MOST) {
        double started = now();
        for (int launch = 0; launch < LAUNCHES; launch++)
            NEED(cuLaunchKernel(touch, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
        samples[count++] = (now() - started) / LAUNCHES;
        NEED(cuCtxSynchronize());
        ended = now();
    }
    print_samples("launch", samples, count, ended - begun);
    NEED(cuMemFree_v2(memory));
}

static void measure_copy(double seconds)
{
    CUdeviceptr memory;
    char *host = malloc(LARGE);
    if (host == NULL)
        exit(1);
    memset(host, 1, LARGE);
    NEED(cuMemAlloc_v2(&memory, LARGE));
    NEED(cuMemcpyHtoD_v2(memory, host, LARGE)); /* touches every page once */
    NEED(cuMemcpyDtoH_v2(host, memory, LARGE));
    for (int back = 0; back < 2; back++) {
        size_t count = 0;
        double begun = now(), last = begun;
        while ((last - begun < seconds / 2 || count < 3) && count < COPIES_MOST) {
            if (back)
                NEED(cuMemcpyDtoH_v2(host, memory, LARGE));
            else
                NEED(cuMemcpyHtoD_v2(memory, host, LARGE));
            double ended = now();
            samples[count++] = ended - last;
            last = ended;
        }
        qsort(samples, count, sizeof *samples, by_value);
        printf(", \"%s_gbps\": %.3f", back ? "d2h" : "h2d", LARGE / samples[count / 2] / 1e9);
    }
    NEED(cuMemFree_v2(memory));
    free(host);
}

/* Whether a word is in a list with commas. */
static int listed(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, word, length) == 0 && (at[length] == ',' || at[length] == 0))
            return 1;
    }
    return 0;
}

int main(int count, char **arguments)
{
    if (count < 3) {
        fprintf(stderr, "usage: op_bench LIBCUDA PTX [SECONDS [op,call,launch,copy]]\n");
        return 2;
    }
    double seconds = count > 3 ? atof(arguments[3]) : 1;
    const char *what = count > 4 ? arguments[4] : "op,call,copy";
    char name[256];
    CUdevice device;
    CUcontext context;
    samples = malloc(SAMPLES_MOST * sizeof *samples);
    char *ptx = read_file(arguments[2]);
    if (samples == NULL)
        return 1;
    open_library(arguments[1]);
    NEED(cuInit(0));
    NEED(cuDeviceGet(&device, 0));
    NEED(cuDeviceGetName(name, sizeof name, device));
    NEED(cuCtxCreate_v2(&context, 0, device));
    printf("{\"device\": \"%s\"", name);
    if (listed(what, "op"))
        measure_op(ptx, seconds);
    if (listed(what, "call"))
        measure_call(seconds);
    if (listed(what, "launch"))
        measure_launch(ptx, seconds);
    if (listed(what, "copy"))
        measure_copy(seconds);
    NEED(cuCtxDestroy_v2(context));
    puts("}");
    free(ptx);
    free(samples);
    return 0;
}
