// Integer histograms of bytes: by global atomics, and per block by shared atomics.
extern "C" __global__ void histogram_global(const unsigned char *in, unsigned int *bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicAdd(&bins[in[i]], 1u);
}

extern "C" __global__ void histogram_shared(const unsigned char *in, unsigned int *bins, int n) {
    __shared__ unsigned int mine[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        mine[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&mine[in[i]], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        if (mine[i])
            atomicAdd(&bins[i], mine[i]);
}
