// Calls: through pointers and virtual functions, recursive, and of the driver's own printf and assert.
extern "C" int printf(const char *, ...);
extern "C" __device__ void __assertfail(const char *, const char *, unsigned, const char *, size_t);

typedef int (*Unary)(int);
__device__ __noinline__ int plus_one(int x) { return x + 1; }
__device__ __noinline__ int twice(int x) { return 2 * x; }
__device__ __noinline__ int square(int x) { return x * x; }
__device__ Unary table[3] = {plus_one, twice, square};

// Each thread takes its own function: lanes of a warp part and meet again.
extern "C" __global__ void through_table(int *out, const int *which, int value)
{
    int i = threadIdx.x;
    out[i] = table[which[i]](value + i) + 1000;
}

extern "C" __global__ void through_argument(int *out, Unary f) { out[threadIdx.x] = f(threadIdx.x); }
extern "C" __global__ void address_of(Unary *out) { *out = square; }

struct Shape {
    int size;
    __device__ virtual int area() { return size; }
};
struct Square : Shape {
    __device__ int area() { return size * size; }
};
extern "C" __global__ void virtual_call(int *out)
{
    Shape plain;
    Square square;
    plain.size = square.size = threadIdx.x;
    Shape *chosen = out[threadIdx.x] & 1 ? &square : &plain;
    out[threadIdx.x] = chosen->area();
}

__device__ __noinline__ unsigned factorial(unsigned n) { return n < 2 ? 1 : n * factorial(n - 1) + (n & 1); }
__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
extern "C" __global__ void recursive(unsigned *out, int most)
{
    int n = threadIdx.x;
    out[n] = factorial(n);
    out[n + 32] = fibonacci(n < most ? n : most);
}

extern "C" __global__ void print(const char *text)
{
    int n = printf("%d|%5d|%-5d|%05d|%+d|%u|%x|%#X|%o|%c|%%|%lld|%llx\n", -7, 42, 42, 42, 42, 4000000000u, 48879, 255, 8,
                   'z', -1234567890123LL, 0xfedcba9876543210ULL);
    printf("%f|%.2f|%8.3f|%e|%g|%a|%*d|%s|%.3s|%10s|%q|%hd\n", 1.5, 2.345, -3.0f, 12345.678, 1e-7, 1.0, 6, 99, text, text,
           text, 70000);
    printf("thread %d of block %d, %d\n", threadIdx.x, blockIdx.x, n);
}
extern "C" __global__ void print_much(int lines)
{
    for (int i = 0; i < lines; i++)
        printf("0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789\n");
}
extern "C" __global__ void fail(const int *values)
{
    if (values[threadIdx.x] == 0)
        __assertfail("values[i] != 0", "calls.cu", 70, "fail", 1);
}
