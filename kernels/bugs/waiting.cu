// Threads that wait for an event that never occurs, each with a corrected version. Compiled with line information.
// A GPU may hang on these; do not launch them there.

typedef unsigned int u32;

// Half a warp waits at one barrier, the other half at another one.
extern "C" __global__ void divergent_barriers(u32 *x, u32 n)
{
    if (threadIdx.x % 32 < n) {
        x[threadIdx.x] = 1;
        asm volatile("bar.sync 0;" ::: "memory");
    } else {
        x[threadIdx.x] = 2;
        asm volatile("bar.sync 0;" ::: "memory");
    }
}

extern "C" __global__ void divergent_barriers_mended(u32 *x, u32 n)
{
    x[threadIdx.x] = threadIdx.x % 32 < n ? 1 : 2;
    __syncthreads();
}

// Half a warp waits at a barrier, the other half waits for the first one.
extern "C" __global__ void barrier_and_shuffle(u32 *x, u32 n)
{
    u32 value = threadIdx.x;
    if (threadIdx.x % 32 < n) {
        asm volatile("bar.sync 0;" ::: "memory");
    } else {
        value = __shfl_sync(0xffffffff, value, 0);
    }
    x[threadIdx.x] = value;
}

extern "C" __global__ void barrier_and_shuffle_mended(u32 *x, u32 n)
{
    u32 value = threadIdx.x;
    __syncthreads();
    u32 other = __shfl_sync(0xffffffff, value, 0);
    x[threadIdx.x] = threadIdx.x % 32 < n ? value : other;
}

// Each of two warps waits at its own barrier for the other one.
extern "C" __global__ void deadlock(u32 *x, u32 n)
{
    if (threadIdx.x < 32) {
        asm volatile("bar.sync 1, 64;" ::: "memory");
    } else {
        asm volatile("bar.sync 2, 64;" ::: "memory");
    }
    x[threadIdx.x] = n;
}

extern "C" __global__ void deadlock_mended(u32 *x, u32 n)
{
    asm volatile("bar.sync 1, 64;" ::: "memory");
    x[threadIdx.x] = n;
}

// All lanes execute the instruction, but the mask contains half of them.
extern "C" __global__ void outside_mask(u32 *x, u32 n)
{
    u32 value = x[threadIdx.x];
    x[threadIdx.x] = __shfl_sync(0x0000ffff, value, n % 16);
}

extern "C" __global__ void outside_mask_mended(u32 *x, u32 n)
{
    u32 value = x[threadIdx.x];
    x[threadIdx.x] = __shfl_sync(0xffffffff, value, n % 16);
}

// The loop waits for a flag that is never set.
extern "C" __global__ void endless(volatile u32 *x, u32 n)
{
    while (x[0] != n) {
        x[1] += 1;
    }
}

extern "C" __global__ void endless_mended(volatile u32 *x, u32 n)
{
    for (u32 i = 0; x[0] != n && i < 10; i++) {
        x[1] += 1;
    }
}
