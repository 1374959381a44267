// Invalid calls, and kernels that abort, each with a corrected version. Compiled with line information.

typedef unsigned int u32;
typedef u32 (*Step)(u32);

__device__ __noinline__ u32 twice(u32 x)
{
    return 2 * x;
}

__device__ __noinline__ u32 squared(u32 x)
{
    return x * x;
}

__device__ Step steps[3] = {twice, squared, nullptr};

// One entry of the table is null.
extern "C" __global__ void bad_call(u32 *x, u32 n)
{
    x[threadIdx.x] = steps[threadIdx.x % n](x[threadIdx.x]);
}

extern "C" __global__ void bad_call_mended(u32 *x, u32 n)
{
    Step step = steps[threadIdx.x % n];
    if (step) {
        x[threadIdx.x] = step(x[threadIdx.x]);
    }
}

__device__ __noinline__ u32 depth(volatile u32 *x, u32 n)
{
    if (x[0] == n) {
        return 0;
    }
    u32 below = depth(x, n + 1);
    x[1] = below;
    return below + 1;
}

// The recursion misses its end condition.
extern "C" __global__ void stack_overflow(u32 *x, u32 n)
{
    x[threadIdx.x] = depth(x, n + 1);
}

extern "C" __global__ void stack_overflow_mended(u32 *x, u32 n)
{
    u32 found = depth(x, n);
    __syncthreads();
    x[threadIdx.x] = found;
}

__device__ __forceinline__ void check(u32 value, u32 most)
{
    if (value > most) {
        __trap();
    }
}

// Inlined: the trap is in `check`, and the bug is at the call.
extern "C" __global__ void trapped(u32 *x, u32 n)
{
    check(threadIdx.x, n);
    x[threadIdx.x] = 1;
}

extern "C" __global__ void trapped_mended(u32 *x, u32 n)
{
    check(threadIdx.x, n + blockDim.x);
    x[threadIdx.x] = 1;
}

extern "C" __global__ void asserted(u32 *x, u32 n)
{
    assert(x[threadIdx.x] < n);
    x[threadIdx.x] = 1;
}

extern "C" __global__ void asserted_mended(u32 *x, u32 n)
{
    assert(x[threadIdx.x] <= n + 0x1000000);
    x[threadIdx.x] = 1;
}
