// A program on the CUDA runtime: kernels from templates, symbols, constant and shared memory, atomics, events, streams,
// graphs, pools, printf, occupancy, attributes and a reset. Every answer is compared with the host's; the first wrong one ends the program.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

__constant__ float factors[4];
__device__ int counter;
__device__ unsigned int table[256];

template <typename T>
__global__ void scale(const T *from, T *to, int count, T by)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count)
        to[at] = from[at] * by;
}

// Both forms have their place in the fat binary, whatever the host uses of them.
template __global__ void scale<float>(const float *, float *, int, float);
template __global__ void scale<int>(const int *, int *, int, int);

extern "C" __global__ void weigh(const float *from, float *to, int count)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count)
        to[at] = from[at] * factors[at % 4];
}

extern "C" __global__ void block_sums(const int *from, int *to, int count)
{
    __shared__ int part[128];
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = at < count ? from[at] : 0;
    __syncthreads();
    for (int width = blockDim.x / 2; width > 0; width /= 2) {
        if (threadIdx.x < width)
            part[threadIdx.x] += part[threadIdx.x + width];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        to[blockIdx.x] = part[0];
}

extern "C" __global__ void reverse_in_dynamic_memory(int *values)
{
    extern __shared__ int kept[];
    kept[threadIdx.x] = values[threadIdx.x];
    __syncthreads();
    values[threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x];
}

extern "C" __global__ void count_up(int by)
{
    atomicAdd(&counter, by);
    atomicMax(&table[threadIdx.x % 256], blockIdx.x + 1);
}

// Text of a kernel appears when the program waits, and behind a proxy nowhere: the count is what can be compared.
extern "C" __global__ void say(int number, int *said)
{
    if (printf("kernel says %d in block %d\n", number, blockIdx.x) > 0)
        atomicAdd(said, 1);
}

static void check(cudaError_t code, const char *what)
{
    if (code == cudaSuccess)
        return;
    std::printf("FAILED %s: %s\n", what, cudaGetErrorString(code));
    std::exit(1);
}
#define CHECK(call) check((call), #call)

static void hold(bool condition, const char *what)
{
    std::printf("%s %s\n", condition ? "ok" : "FAILED", what);
    if (!condition)
        std::exit(1);
}

template <typename T>
static T *on_device(const std::vector<T> &values)
{
    T *there = nullptr;
    CHECK(cudaMalloc(&there, values.size() * sizeof(T)));
    CHECK(cudaMemcpy(there, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    return there;
}

template <typename T>
static std::vector<T> from_device(const T *there, size_t count)
{
    std::vector<T> values(count);
    CHECK(cudaMemcpy(values.data(), there, count * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
}

template <typename T>
static void templates(T by, const char *name)
{
    const int count = 1000;
    std::vector<T> values(count);
    for (int i = 0; i < count; i++)
        values[i] = T(i);
    T *there = on_device(values);
    scale<T><<<(count + 127) / 128, 128>>>(there, there, count, by);
    CHECK(cudaGetLastError());
    std::vector<T> found = from_device(there, count);
    bool right = true;
    for (int i = 0; i < count; i++)
        right = right && found[i] == T(i) * by;
    CHECK(cudaFree(there));
    hold(right, name);
}

static void device_properties()
{
    int count = 0, version = 0;
    cudaDeviceProp properties;
    size_t available = 0, total = 0;
    CHECK(cudaGetDeviceCount(&count));
    CHECK(cudaRuntimeGetVersion(&version));
    CHECK(cudaGetDeviceProperties(&properties, 0));
    CHECK(cudaMemGetInfo(&available, &total));
    hold(count == 1 && properties.warpSize == 32 && properties.totalGlobalMem == total && available <= total,
         "properties");
    std::printf("runtime %d on %s with %zu bytes\n", version, properties.name, total);
}

static void symbols()
{
    const float weights[4] = {1.0f, 0.5f, -2.0f, 8.0f};
    std::vector<float> ones(64, 3.0f);
    CHECK(cudaMemcpyToSymbol(factors, weights, sizeof weights));
    float *there = on_device(ones);
    weigh<<<1, 64>>>(there, there, 64);
    std::vector<float> found = from_device(there, 64);
    bool right = true;
    for (int i = 0; i < 64; i++)
        right = right && found[i] == 3.0f * weights[i % 4];
    CHECK(cudaFree(there));
    size_t bytes = 0;
    CHECK(cudaGetSymbolSize(&bytes, table));
    hold(right && bytes == 1024, "constant symbol");

    int start = 5, end = 0;
    unsigned int tops[256];
    CHECK(cudaMemcpyToSymbol(counter, &start, sizeof start));
    count_up<<<10, 300>>>(2);
    CHECK(cudaMemcpyFromSymbol(&end, counter, sizeof end));
    CHECK(cudaMemcpyFromSymbol(tops, table, sizeof tops));
    hold(end == 5 + 10 * 300 * 2 && tops[0] == 10 && tops[255] == 10, "atomics on symbols");
}

static void shared_memory()
{
    std::vector<int> values(1000);
    for (int i = 0; i < 1000; i++)
        values[i] = i;
    int *there = on_device(values), *sums = nullptr;
    CHECK(cudaMalloc(&sums, 8 * sizeof(int)));
    block_sums<<<8, 128>>>(there, sums, 1000);
    int all = 0;
    for (int part : from_device(sums, 8))
        all += part;
    reverse_in_dynamic_memory<<<1, 256, 256 * sizeof(int)>>>(there);
    std::vector<int> reversed = from_device(there, 256);
    hold(all == 499500 && reversed[0] == 255 && reversed[255] == 0, "shared memory");
    CHECK(cudaFree(there));
    CHECK(cudaFree(sums));
    CHECK(cudaFree(nullptr));
}

static void streams_and_events()
{
    cudaStream_t stream;
    cudaEvent_t begin, end;
    float milliseconds = -1;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    std::vector<float> values(4096, 2.0f), found(4096);
    float *there = nullptr;
    CHECK(cudaMalloc(&there, 4096 * sizeof(float)));
    CHECK(cudaEventRecord(begin, stream));
    CHECK(cudaMemcpyAsync(there, values.data(), 4096 * sizeof(float), cudaMemcpyHostToDevice, stream));
    scale<float><<<32, 128, 0, stream>>>(there, there, 4096, 3.0f);
    CHECK(cudaMemcpyAsync(found.data(), there, 4096 * sizeof(float), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    CHECK(cudaMemsetAsync(there, 0, 4096 * sizeof(float), stream));
    CHECK(cudaStreamSynchronize(stream));
    hold(found[0] == 6.0f && found[4095] == 6.0f && milliseconds >= 0 && from_device(there, 1)[0] == 0,
         "streams and events");
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaEventDestroy(end));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(there));
}

static void graphs()
{
    const int count = 4096;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    size_t nodes = 0;
    std::vector<float> values(count, 2.0f), found(count);
    float *there = on_device(values);
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    scale<float><<<32, 128, 0, stream>>>(there, there, count, 3.0f);
    CHECK(cudaMemcpyAsync(found.data(), there, count * sizeof(float), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    bool nothing_ran = found[0] == 0.0f;
    for (int turn = 0; turn < 2; turn++)
        CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    hold(nothing_ran && nodes == 2 && found[0] == 18.0f && found[count - 1] == 18.0f, "a captured graph");
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(there));
}

static void pools()
{
    const size_t bytes = 1 << 20;
    cudaStream_t stream;
    cudaMemPool_t pool;
    unsigned long long used = 0;
    unsigned int *there = nullptr;
    std::vector<unsigned int> found(bytes / 4);
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaMallocAsync(reinterpret_cast<void **>(&there), bytes, stream));
    CHECK(cudaMemsetAsync(there, 0x5a, bytes, stream));
    CHECK(cudaMemcpyAsync(found.data(), there, bytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    CHECK(cudaFreeAsync(there, stream));
    CHECK(cudaStreamSynchronize(stream));
    hold(found[0] == 0x5a5a5a5au && found[bytes / 4 - 1] == 0x5a5a5a5au && used >= bytes, "memory of a pool");
    CHECK(cudaStreamDestroy(stream));
}

static void printing()
{
    std::vector<int> none(1, 0);
    int *said = on_device(none);
    say<<<3, 1>>>(42, said);
    CHECK(cudaDeviceSynchronize());
    hold(from_device(said, 1)[0] == 3, "printf");
    CHECK(cudaFree(said));
}

static void attributes()
{
    cudaFuncAttributes of_sums;
    cudaPointerAttributes of_pointer;
    int blocks = 0, grid = 0, block = 0, local = 0;
    CHECK(cudaFuncGetAttributes(&of_sums, block_sums));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, block_sums, 128, 0));
    CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, weigh, 0, 0));
    hold(of_sums.sharedSizeBytes == 512 && of_sums.maxThreadsPerBlock >= 128 && blocks >= 1 && grid >= 1 && block >= 32,
         "attributes and occupancy");
    int *there = nullptr;
    CHECK(cudaMalloc(&there, 4096));
    CHECK(cudaPointerGetAttributes(&of_pointer, there + 1));
    bool device = of_pointer.type == cudaMemoryTypeDevice && of_pointer.devicePointer == there + 1;
    CHECK(cudaPointerGetAttributes(&of_pointer, &local));
    hold(device && of_pointer.type == cudaMemoryTypeUnregistered, "attributes of pointers");
    CHECK(cudaFree(there));
}

static void errors()
{
    scale<float><<<1, 4096>>>(nullptr, nullptr, 0, 1.0f); // no block has so many threads
    bool refused = cudaGetLastError() != cudaSuccess;
    refused = cudaDeviceSynchronize() != cudaSuccess || refused; // where launches are posted
    cudaGetLastError();
    hold(refused && cudaFree(reinterpret_cast<void *>(0x123)) == cudaErrorInvalidValue, "errors");
    cudaGetLastError();
}

int main()
{
    device_properties();
    for (int turn = 0; turn < 2; turn++) { // again behind a reset, which takes everything away
        templates<float>(1.5f, "template of float");
        templates<int>(-3, "template of int");
        symbols();
        shared_memory();
        streams_and_events();
        graphs();
        pools();
        printing();
        attributes();
        errors();
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaDeviceReset());
    }
    std::printf("PASS\n");
    return 0;
}
