// C = A * B for square row-major matrices, in tiles of shared memory; with static and with dynamic shared memory.
#define TILE 16

extern "C" __global__ void matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float left[TILE][TILE], right[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int at = 0; at < n; at += TILE) {
        int k = at + threadIdx.x, l = at + threadIdx.y;
        left[threadIdx.y][threadIdx.x] = row < n && k < n ? a[row * n + k] : 0.0f;
        right[threadIdx.y][threadIdx.x] = column < n && l < n ? b[l * n + column] : 0.0f;
        __syncthreads();
        for (int i = 0; i < TILE; i++)
            sum += left[threadIdx.y][i] * right[i][threadIdx.x];
        __syncthreads();
    }
    if (row < n && column < n)
        c[row * n + column] = sum;
}

extern "C" __global__ void matmul_dynamic(const double *a, const double *b, double *c, int n) {
    extern __shared__ double tiles[];
    double *left = tiles, *right = tiles + blockDim.x * blockDim.x;
    int tile = blockDim.x, x = threadIdx.x, y = threadIdx.y;
    int row = blockIdx.y * tile + y, column = blockIdx.x * tile + x;
    double sum = 0.0;
    for (int at = 0; at < n; at += tile) {
        left[y * tile + x] = row < n && at + x < n ? a[row * n + at + x] : 0.0;
        right[y * tile + x] = column < n && at + y < n ? b[(at + y) * n + column] : 0.0;
        __syncthreads();
        for (int i = 0; i < tile; i++)
            sum += left[y * tile + i] * right[i * tile + x];
        __syncthreads();
    }
    if (row < n && column < n)
        c[row * n + column] = sum;
}
