// Lanes and warps with wrong assumptions about each other, each with a corrected version. Compiled with line
// information. A GPU may hang or compute anything; do not launch them there.

typedef unsigned int u32;

// A sum over eight lanes that all of them use: the upper lanes add values of lanes that do not participate.
extern "C" __global__ void shuffle_outside(u32 *x, u32 n)
{
    if (threadIdx.x >= 8) {
        return;
    }
    u32 sum = x[threadIdx.x];
    for (u32 step = n; step > 0; step /= 2) {
        sum += __shfl_down_sync(0x000000ff, sum, step);
    }
    x[threadIdx.x] = sum;
}

extern "C" __global__ void shuffle_outside_mended(u32 *x, u32 n)
{
    if (threadIdx.x >= 8) {
        return;
    }
    u32 sum = x[threadIdx.x];
    for (u32 step = n; step > 0; step /= 2) {
        sum += __shfl_down_sync(0x000000ff, sum, step);
    }
    if (threadIdx.x == 0) {
        x[0] = sum;
    }
}

// The mask contains lanes that have exited.
extern "C" __global__ void shuffle_from_exited(u32 *x, u32 n)
{
    u32 value = x[threadIdx.x];
    if (threadIdx.x >= n) {
        return;
    }
    x[threadIdx.x] = __shfl_xor_sync(0xffffffff, value, 16);
}

extern "C" __global__ void shuffle_from_exited_mended(u32 *x, u32 n)
{
    u32 value = x[threadIdx.x];
    u32 other = __shfl_xor_sync(0xffffffff, value, 16);
    if (threadIdx.x >= n) {
        return;
    }
    x[threadIdx.x] = other;
}

// Half a warp votes and the other half shuffles, both with the mask of the whole warp.
extern "C" __global__ void vote_and_shuffle(u32 *x, u32 n)
{
    u32 value = x[threadIdx.x];
    if (threadIdx.x % 32 < 16) {
        value = __ballot_sync(0xffffffff, value < n);
    } else {
        value = __shfl_sync(0xffffffff, value, 0);
    }
    x[threadIdx.x] = value;
}

extern "C" __global__ void vote_and_shuffle_mended(u32 *x, u32 n)
{
    u32 value = x[threadIdx.x];
    if (threadIdx.x % 32 < 16) {
        value = __ballot_sync(0x0000ffff, value < n);
    } else {
        value = __shfl_sync(0xffff0000, value, 16);
    }
    x[threadIdx.x] = value;
}

// Two warps arrive at one barrier with different thread counts.
extern "C" __global__ void barrier_counts(u32 *x, u32 n)
{
    if (threadIdx.x < n) {
        asm volatile("bar.sync 1, 64;" ::: "memory");
    } else {
        asm volatile("bar.sync 1, 96;" ::: "memory");
    }
    x[threadIdx.x] = n;
}

extern "C" __global__ void barrier_counts_mended(u32 *x, u32 n)
{
    asm volatile("bar.sync 1, 64;" ::: "memory");
    x[threadIdx.x] = n;
}

// A function without a result is called as one with a result.
typedef u32 (*Step)(u32);

__device__ __noinline__ void note(u32 *x)
{
    x[0] += 1;
}

__device__ __noinline__ u32 next(u32 value)
{
    return value * 3 + 1;
}

extern "C" __global__ void wrong_function(u32 *x, u32 n)
{
    Step step = n % 2 ? (Step)note : next;
    x[threadIdx.x] = step(threadIdx.x);
}

extern "C" __global__ void wrong_function_mended(u32 *x, u32 n)
{
    Step step = n % 2 ? next : (Step)note;
    x[threadIdx.x] = step(threadIdx.x);
}
