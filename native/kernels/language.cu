// One kernel per corner of the language that the others leave out; each writes what a reference can compute exactly,
// except `maths`, whose approximations are compared with a tolerance.
__constant__ int weights[8] = {1, -2, 3, -4, 5, -6, 7, -8};
__device__ unsigned int counter = 40;
__device__ float table[4] = {0.5f, 1.5f, 2.5f, 3.5f};

extern "C" __global__ void constants(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = in[i] * weights[i & 7] + (int)(table[i & 3] * 2.0f);
    if (i == 0)
        counter += 2;
}

extern "C" __global__ void convert(const float *in, int *to_int, unsigned char *to_byte, double *to_double,
                                   long long *to_long, short *to_short, float *from_int, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float x = in[i];
    to_int[i] = (int)x;
    to_byte[i] = (unsigned char)(int)x;
    to_double[i] = (double)x / 3.0;
    to_long[i] = (long long)(x * 1000.0f);
    to_short[i] = (short)(int)x;
    from_int[i] = (float)(to_int[i] * 3) + (float)(unsigned int)i + rintf(x) + floorf(x) + ceilf(x) + truncf(x);
}

extern "C" __global__ void integers(const int *a, const int *b, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int x = a[i], y = b[i];
    unsigned int u = (unsigned int)x, v = (unsigned int)y;
    int *o = out + i * 16;
    o[0] = y ? x / y : 0;
    o[1] = y ? x % y : 0;
    o[2] = v ? (int)(u / v) : 0;
    o[3] = v ? (int)(u % v) : 0;
    o[4] = (int)(((long long)x * y) >> 32);
    o[5] = (int)(((unsigned long long)u * v) >> 32);
    o[6] = x << (y & 31);
    o[7] = x >> (y & 31);
    o[8] = (int)(u >> (v & 31));
    o[9] = __popc(x) + 100 * __clz(x) + 10000 * __ffs(y);
    o[10] = (int)__brev(u);
    o[11] = min(x, y) ^ max(x, y);
    o[12] = (int)(min(u, v) ^ max(u, v));
    o[13] = abs(x) & ~y;
    o[14] = (int)__byte_perm(u, v, 0x2461);
    o[15] = (int)__funnelshift_l(u, v, x & 63);
}

extern "C" __global__ void longs(const long long *a, const long long *b, long long *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    long long x = a[i], y = b[i];
    unsigned long long u = (unsigned long long)x, v = (unsigned long long)y;
    long long *o = out + i * 8;
    o[0] = x * y;
    o[1] = y ? x / y : 0;
    o[2] = v ? (long long)(u % v) : 0;
    o[3] = __mul64hi(x, y);
    o[4] = (long long)(u >> (y & 63)) ^ (x << (y & 63));
    o[5] = __popcll(x) + 100 * __clzll(x) + 10000 * __ffsll(y);
    o[6] = min(x, y);
    o[7] = (long long)(max(u, v) - (u & v));
}

extern "C" __global__ void doubles(const double *a, const double *b, double *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    double x = a[i], y = b[i];
    double *o = out + i * 6;
    o[0] = x / y;
    o[1] = sqrt(fabs(x));
    o[2] = __dadd_rn(__dmul_rn(x, y), 1.0);
    o[3] = fma(x, y, 1.0);
    o[4] = fmin(x, y) - fmax(x, y);
    o[5] = (double)(float)x + (double)(int)y;
}

extern "C" __global__ void maths(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float x = in[i];
    float *o = out + i * 8;
    o[0] = sqrtf(x);
    o[1] = expf(x);
    o[2] = logf(x);
    o[3] = sinf(x);
    o[4] = powf(x, 1.5f);
    o[5] = rsqrtf(x);
    o[6] = 1.0f / x;
    o[7] = tanhf(x);
}

__device__ __noinline__ int collatz(long long value) {
    int steps = 0;
    while (value > 1) {
        value = value & 1 ? 3 * value + 1 : value / 2;
        steps++;
    }
    return steps;
}

extern "C" __global__ void device_function(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = collatz(in[i]) + 1000 * collatz(i + 1);
}

extern "C" __global__ void local_array(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int counts[16];
    if (i >= n)
        return;
    for (int j = 0; j < 16; j++)
        counts[j] = j;
    for (int j = 0; j < 8; j++)
        counts[(in[i] >> (4 * j)) & 15] += j * j;
    int sum = 0;
    for (int j = 0; j < 16; j++)
        sum = sum * 7 + counts[j];
    out[i] = sum;
}

extern "C" __global__ void choose(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int x = in[i];
    switch (x & 15) {
    case 0: out[i] = x + 1; break;
    case 1: out[i] = x * 2; break;
    case 2: out[i] = x - 7; break;
    case 3: out[i] = x ^ 0x55; break;
    case 4: out[i] = -x; break;
    case 5: out[i] = x >> 2; break;
    case 6: out[i] = x / 5; break;
    case 9: out[i] = x % 11; break;
    default: out[i] = x < 0 ? -1 : i;
    }
}

extern "C" __global__ void votes(const int *in, unsigned int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int x = i < n ? in[i] : 0;
    unsigned int *o = out + i * 8;
    o[0] = __ballot_sync(0xffffffffu, x & 1);
    o[1] = __any_sync(0xffffffffu, x == 3);
    o[2] = __all_sync(0xffffffffu, x >= 0);
    o[3] = (unsigned int)__shfl_xor_sync(0xffffffffu, x, 5);
    o[4] = (unsigned int)__shfl_up_sync(0xffffffffu, x, 3);
    o[5] = (unsigned int)__shfl_sync(0xffffffffu, x, 7, 16);
    o[6] = (unsigned int)__syncthreads_count(x & 1);
    o[7] = 0;
    if (x & 1) { /* half of the warp only */
        unsigned int here = __activemask();
        o[7] = __popc(here) + (unsigned int)__shfl_sync(here, x, __ffs((int)here) - 1);
    }
}

extern "C" __global__ void atomics(const int *in, int *ints, unsigned long long *longs_out, float *floats, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int x = in[i];
    atomicMin(&ints[0], x);
    atomicMax(&ints[1], x);
    atomicAnd(&ints[2], x);
    atomicOr(&ints[3], x);
    atomicXor(&ints[4], x);
    atomicSub(&ints[5], x);
    atomicInc((unsigned int *)&ints[6], 9u);
    int seen = ints[7], wanted;
    do {
        wanted = seen;
        seen = atomicCAS(&ints[7], wanted, wanted + (x & 3));
    } while (seen != wanted);
    atomicAdd(&longs_out[0], (unsigned long long)x);
    atomicMax(&longs_out[1], (unsigned long long)(unsigned int)x);
    atomicAdd(&floats[0], 1.0f);
    atomicExch(&ints[8], 77);
}

extern "C" __global__ void bad_address(int *out, long long offset) {
    out[offset + threadIdx.x] = 1;
}

extern "C" __global__ void endless(volatile int *flag) {
    while (*flag == 0)
        ;
}

struct pair {
    char tag;
    double value;
    short counts[3];
};

extern "C" __global__ void structure(struct pair by_value, double *out, int which) {
    out[threadIdx.x] = by_value.value + by_value.tag + by_value.counts[which];
}
