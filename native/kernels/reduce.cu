// Sums per block: through shared memory, and through warp shuffles.
extern "C" __global__ void block_sum(const float *in, float *out, int n) {
    extern __shared__ float part[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = part[0];
}

__device__ int warp_sum(int value) {
    for (int step = 16; step > 0; step /= 2)
        value += __shfl_down_sync(0xffffffffu, value, step);
    return value;
}

extern "C" __global__ void shuffle_sum(const int *in, int *out, int n) {
    __shared__ int parts[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int value = warp_sum(i < n ? in[i] : 0);
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x < 32) {
        value = warp_sum(threadIdx.x < blockDim.x / 32 ? parts[threadIdx.x] : 0);
        if (threadIdx.x == 0)
            out[blockIdx.x] = value;
    }
}
