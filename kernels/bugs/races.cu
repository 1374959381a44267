// Races on shared memory, each with a corrected version. Compiled with line information.

typedef unsigned int u32;

// Blocks of 64 threads. Each thread reads a word that another warp writes: a barrier is missing.
extern "C" __global__ void race_block(u32 *x, u32 n)
{
    __shared__ u32 tile[64];
    tile[threadIdx.x] = threadIdx.x + n;
    x[threadIdx.x] = tile[63 - threadIdx.x];
}

extern "C" __global__ void race_block_mended(u32 *x, u32 n)
{
    __shared__ u32 tile[64];
    tile[threadIdx.x] = threadIdx.x + n;
    __syncthreads();
    x[threadIdx.x] = tile[63 - threadIdx.x];
}

// Rounds that use the same memory: the barrier before the next round is missing.
extern "C" __global__ void race_next_round(u32 *x, u32 n)
{
    __shared__ u32 tile[64];
    u32 sum = 0;
    for (u32 round = 0; round < n; round++) {
        tile[threadIdx.x] = threadIdx.x * round;
        __syncthreads();
        sum += tile[63 - threadIdx.x];
    }
    x[threadIdx.x] = sum;
}

extern "C" __global__ void race_next_round_mended(u32 *x, u32 n)
{
    __shared__ u32 tile[64];
    u32 sum = 0;
    for (u32 round = 0; round < n; round++) {
        tile[threadIdx.x] = threadIdx.x * round;
        __syncthreads();
        sum += tile[63 - threadIdx.x];
        __syncthreads();
    }
    x[threadIdx.x] = sum;
}

// Lanes of one warp: running together does not order their accesses.
extern "C" __global__ void race_warp(u32 *x, u32 n)
{
    __shared__ u32 tile[64];
    u32 warp = threadIdx.x / 32 * 32;
    tile[threadIdx.x] = threadIdx.x + n;
    x[threadIdx.x] = tile[warp + (threadIdx.x + 1) % 32];
}

extern "C" __global__ void race_warp_mended(u32 *x, u32 n)
{
    __shared__ u32 tile[64];
    u32 warp = threadIdx.x / 32 * 32;
    tile[threadIdx.x] = threadIdx.x + n;
    __syncwarp();
    x[threadIdx.x] = tile[warp + (threadIdx.x + 1) % 32];
}

// Lanes of one warp write different values to one word in one instruction.
extern "C" __global__ void race_same_store(u32 *x, u32 n)
{
    __shared__ u32 last;
    if (threadIdx.x < 32) {
        last = threadIdx.x + n;
    }
    __syncthreads();
    x[threadIdx.x] = last;
}

extern "C" __global__ void race_same_store_mended(u32 *x, u32 n)
{
    __shared__ u32 last;
    if (threadIdx.x == 31) {
        last = threadIdx.x + n;
    }
    __syncthreads();
    x[threadIdx.x] = last;
}

// The counter is set to 0 without a barrier before the atomics.
extern "C" __global__ void race_atomic(u32 *x, u32 n)
{
    __shared__ u32 count;
    if (threadIdx.x == 0) {
        count = 0;
    }
    if (threadIdx.x < n) {
        atomicAdd(&count, 1);
    }
    __syncthreads();
    x[threadIdx.x] = count;
}

extern "C" __global__ void race_atomic_mended(u32 *x, u32 n)
{
    __shared__ u32 count;
    if (threadIdx.x == 0) {
        count = 0;
    }
    __syncthreads();
    if (threadIdx.x < n) {
        atomicAdd(&count, 1);
    }
    __syncthreads();
    x[threadIdx.x] = count;
}

// A flag passes data between two warps: the fences are missing.
extern "C" __global__ void race_flag(u32 *x, u32 n)
{
    __shared__ u32 data;
    __shared__ u32 flag;
    if (threadIdx.x == 0) {
        *(volatile u32 *)&flag = 0;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        data = n;
        atomicExch(&flag, 1);
    } else if (threadIdx.x == 32) {
        while (atomicAdd(&flag, 0) == 0) {
        }
        x[0] = data;
    }
}

extern "C" __global__ void race_flag_mended(u32 *x, u32 n)
{
    __shared__ u32 data;
    __shared__ u32 flag;
    if (threadIdx.x == 0) {
        *(volatile u32 *)&flag = 0;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        data = n;
        __threadfence_block();
        atomicExch(&flag, 1);
    } else if (threadIdx.x == 32) {
        while (atomicAdd(&flag, 0) == 0) {
        }
        __threadfence_block();
        x[0] = data;
    }
}
