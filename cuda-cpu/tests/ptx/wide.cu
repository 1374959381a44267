// Features of ordinary kernels beyond the repository's own: calls, recursion, divergence, locks, halves.
#include <cuda_fp16.h>
#include <cuda_bf16.h>

extern "C" __global__ void mandelbrot(unsigned int *out, unsigned int width, unsigned int height, unsigned int limit)
{
    unsigned int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    float cx = x * 3.0f / width - 2.0f, cy = y * 2.0f / height - 1.0f, zx = 0, zy = 0;
    unsigned int i = 0;
    while (i < limit && zx * zx + zy * zy < 4.0f) {
        float t = zx * zx - zy * zy + cx;
        zy = 2.0f * zx * zy + cy;
        zx = t;
        i++;
    }
    out[y * width + x] = i;
}

__device__ __noinline__ unsigned int fibonacci(unsigned int n)
{
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

extern "C" __global__ void recursion(unsigned int *out)
{
    out[threadIdx.x] = fibonacci(threadIdx.x % 13);
}

__device__ __noinline__ int twice(int x) { return 2 * x; }
__device__ __noinline__ int square(int x) { return x * x; }
__device__ __noinline__ int minus(int x) { return -x; }
typedef int (*Function)(int);
__device__ Function table[3] = {twice, square, minus};

extern "C" __global__ void pointers(int *out)
{
    out[threadIdx.x] = table[threadIdx.x % 3](threadIdx.x);
}

extern "C" __global__ void spin_lock(unsigned int *lock, unsigned int *count, unsigned int rounds)
{
    for (unsigned int i = 0; i < rounds; i++) {
        while (atomicCAS(lock, 0u, 1u) != 0u) {}
        __threadfence();
        *(volatile unsigned int *)count = *(volatile unsigned int *)count + 1;
        __threadfence();
        atomicExch(lock, 0u);
    }
}

// Every block waits for all others, so they must take turns.
extern "C" __global__ void grid_barrier(unsigned int *arrived, unsigned int *out)
{
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1u);
        while (*(volatile unsigned int *)arrived < gridDim.x) {}
    }
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = *(volatile unsigned int *)arrived;
}

// Lanes of both branches execute one shuffle each, matched by mask.
extern "C" __global__ void divergent_shuffle(int *out)
{
    int lane = threadIdx.x, value;
    if (lane & 1) value = __shfl_sync(0xaaaaaaaau, lane * 10, 5);
    else value = __shfl_sync(0x55555555u, lane * 100, 4);
    __syncwarp();
    unsigned peers = __match_any_sync(0xffffffffu, lane / 5);
    out[lane] = value + (int)__popc(peers) * 100000;
}

extern "C" __global__ void halves(const float *x, float *out, unsigned int n)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __half a = __float2half(x[i]), b = __float2half(x[n - 1 - i]);
    __half2 p = __halves2half2(a, b);
    p = __hfma2(p, p, __half2half2(b));
    __nv_bfloat16 c = __float2bfloat16(x[i]);
    out[i] = __low2float(p) + __high2float(p) + __bfloat162float(__hmul(c, c)) + (__hlt(a, b) ? 1.0f : 0.0f);
}

extern "C" __global__ void doubles(const double *x, double *out, unsigned int n)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = sin(x[i]) * exp(-x[i]) + pow(fabs(x[i]), 1.5) + log(1.0 + x[i] * x[i]) / sqrt(2.0 + x[i]) + tgamma(1.0 + fabs(x[i]));
}

extern "C" __global__ void floats(const float *x, float *out, unsigned int n)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = sinf(x[i] * 1e5f) * expf(-x[i]) + powf(fabsf(x[i]), 1.5f) + logf(1.0f + x[i] * x[i]) / sqrtf(2.0f + x[i]) + tanhf(x[i]) + erff(x[i]) + __sinf(x[i]);
}

extern "C" __global__ void local_array(const unsigned int *x, unsigned int *out)
{
    unsigned int digits[16] = {};
    for (int i = 0; i < 64; i++) digits[x[threadIdx.x * 64 + i] & 15]++;
    unsigned int best = 0;
    for (unsigned int i = 1; i < 16; i++) if (digits[i] > digits[best]) best = i;
    out[threadIdx.x] = best * 1000 + digits[best];
}

extern "C" __global__ void switches(unsigned int *out)
{
    unsigned int r = threadIdx.x;
    switch (threadIdx.x % 8) {
    case 0: r *= 3; break;
    case 1: r ^= 77; break;
    case 2: r += 1000; break;
    case 3: r = ~r; break;
    case 4: r <<= 4; break;
    case 5: r = __brev(r); break;
    case 6: r = __clz(r); break;
    default: r = r * r;
    }
    out[threadIdx.x] = r;
}

extern "C" __global__ void wide_ints(const unsigned long long *x, unsigned long long *out, unsigned int n)
{
    unsigned int i = threadIdx.x;
    if (i >= n) return;
    unsigned long long a = x[i], b = x[(i + 1) % n] | 1;
    unsigned __int128 p = (unsigned __int128)a * b + a;
    out[4 * i] = (unsigned long long)(p >> 64);
    out[4 * i + 1] = (unsigned long long)p;
    out[4 * i + 2] = a / b + a % b;
    out[4 * i + 3] = __umul64hi(a, b) + (unsigned long long)((long long)a / (long long)(b >> 3 | 1));
}
