// The kernels of null_sm90.cubin and null_sm80.cubin: parameters of several sizes, one long structure, shared memory,
// a bound on the threads, and variables with and without a first value. make_cubins.py compiles them.
__device__ unsigned int table[4] = {1, 2, 3, 5};
__device__ unsigned long long counter;
__constant__ float weights[8];

struct shape {
    int sizes[3];
    short flags;
};
struct many {
    char bytes[5000];
};

extern "C" __global__ void scale(float *data, float factor)
{
    data[threadIdx.x] *= factor;
}

extern "C" __global__ void __launch_bounds__(128) mixed(char first, double second, shape third, const float *fourth, short fifth)
{
    __shared__ float tile[256];
    tile[threadIdx.x] = fourth[threadIdx.x] + weights[threadIdx.x % 8];
    __syncthreads();
    table[threadIdx.x % 4] += (unsigned int)tile[255 - threadIdx.x] + first + (unsigned int)second + third.sizes[1] + fifth;
}

extern "C" __global__ void long_parameter(many all, unsigned int *out)
{
    out[0] = all.bytes[threadIdx.x];
    counter += 1;
}

extern "C" __global__ void nothing()
{
}
