// Correct patterns of cooperation between the threads of a block. No check may report them. Blocks of 64 threads; x has
// 64 words. Compiled with line information.

typedef unsigned int u32;
typedef unsigned char u8;

// One warp produces and the other consumes, in rounds, with two named barriers.
extern "C" __global__ void producer_consumer(u32 *x, u32 n)
{
    __shared__ u32 slots[32];
    u32 lane = threadIdx.x % 32, sum = 0;
    for (u32 round = 0; round < n; round++) {
        if (threadIdx.x < 32) {
            if (round > 0) {
                asm volatile("bar.sync 2, 64;" ::: "memory");
            }
            slots[lane] = lane * round;
            asm volatile("bar.arrive 1, 64;" ::: "memory");
        } else {
            asm volatile("bar.sync 1, 64;" ::: "memory");
            sum += slots[31 - lane];
            if (round + 1 < n) {
                asm volatile("bar.arrive 2, 64;" ::: "memory");
            }
        }
    }
    x[threadIdx.x] = sum;
}

// Each warp has its own part, and its lanes wait for each other: all of them, and by halves.
extern "C" __global__ void warp_steps(u32 *x, u32 n)
{
    __shared__ u32 tile[64];
    u32 warp = threadIdx.x / 32 * 32, lane = threadIdx.x % 32;
    tile[threadIdx.x] = threadIdx.x + n;
    __syncwarp();
    u32 value = tile[warp + (lane + 1) % 32];
    __syncwarp();
    tile[threadIdx.x] = value;
    u32 half = lane / 16 * 16;
    if (lane < 16) {
        __syncwarp(0x0000ffff);
        value += tile[warp + half + (lane + 3) % 16];
    } else {
        __syncwarp(0xffff0000);
        value -= tile[warp + half + (lane + 5) % 16];
    }
    x[threadIdx.x] = value;
}

// The usual sum: by shuffles within each warp, then over the warps.
extern "C" __global__ void shuffled_sum(u32 *x, u32 n)
{
    __shared__ u32 parts[32];
    u32 value = x[threadIdx.x] * n;
    for (u32 step = 16; step > 0; step /= 2) {
        value += __shfl_down_sync(0xffffffff, value, step);
    }
    if (threadIdx.x % 32 == 0) {
        parts[threadIdx.x / 32] = value;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        value = threadIdx.x < blockDim.x / 32 ? parts[threadIdx.x] : 0;
        for (u32 step = 16; step > 0; step /= 2) {
            value += __shfl_xor_sync(0xffffffff, value, step);
        }
        // All lanes write the same value.
        parts[31] = value;
    }
    __syncthreads();
    x[threadIdx.x] = parts[31];
}

// A lock in shared memory that protects shared data.
extern "C" __global__ void locked(u32 *x, u32 n)
{
    __shared__ u32 lock, total, count;
    if (threadIdx.x == 0) {
        lock = total = count = 0;
    }
    __syncthreads();
    bool done = false;
    while (!done) {
        if (atomicCAS(&lock, 0, 1) == 0) {
            __threadfence_block();
            total += threadIdx.x * n;
            count += 1;
            __threadfence_block();
            atomicExch(&lock, 0);
            done = true;
        }
    }
    __syncthreads();
    x[threadIdx.x] = total + count;
}

// The same with the lock in global memory.
__device__ u32 outer_lock;

extern "C" __global__ void locked_outside(u32 *x, u32 n)
{
    __shared__ u32 total;
    if (threadIdx.x == 0) {
        total = 0;
    }
    __syncthreads();
    bool done = false;
    while (!done) {
        if (atomicCAS(&outer_lock, 0, 1) == 0) {
            __threadfence();
            total += threadIdx.x * n;
            __threadfence();
            atomicExch(&outer_lock, 0);
            done = true;
        }
    }
    __syncthreads();
    x[threadIdx.x] = total;
}

// A flag with release and acquire, between lanes and between warps.
extern "C" __global__ void handed_on(u32 *x, u32 n)
{
    __shared__ u32 data[64];
    __shared__ u32 turn;
    u32 at = (u32)__cvta_generic_to_shared(&turn), now;
    if (threadIdx.x == 0) {
        turn = 0;
    }
    __syncthreads();
    if (threadIdx.x % 16 == 0) {
        u32 own = threadIdx.x / 16;
        do {
            asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(now) : "r"(at) : "memory");
        } while (now != own);
        data[own] = own == 0 ? n : data[own - 1] * 3;
        asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"(at), "r"(own + 1) : "memory");
    }
    __syncthreads();
    x[threadIdx.x] = data[threadIdx.x / 16];
}

// A counter determines the last one of a warp's lanes, and of the block's threads.
extern "C" __global__ void last_one_sums(u32 *x, u32 n)
{
    __shared__ u32 parts[64];
    __shared__ u32 arrived, sum;
    if (threadIdx.x == 0) {
        arrived = 0;
    }
    __syncthreads();
    parts[threadIdx.x] = threadIdx.x * n;
    __threadfence_block();
    if (atomicAdd(&arrived, 1) == blockDim.x - 1) {
        __threadfence_block();
        u32 all = 0;
        for (u32 i = 0; i < blockDim.x; i++) {
            all += parts[i];
        }
        sum = all;
    }
    __syncthreads();
    x[threadIdx.x] = sum;
}

// Atomic counters, and adjacent bytes of one word.
extern "C" __global__ void neighbours(u32 *x, u32 n)
{
    __shared__ u32 counts[8];
    __shared__ u8 bytes[64];
    __shared__ unsigned short halves[64];
    if (threadIdx.x < 8) {
        counts[threadIdx.x] = 0;
    }
    __syncthreads();
    atomicAdd(&counts[threadIdx.x % 8], 1);
    bytes[threadIdx.x] = threadIdx.x * n;
    halves[63 - threadIdx.x] = threadIdx.x;
    bytes[threadIdx.x] += 1;
    __syncthreads();
    x[threadIdx.x] = counts[(threadIdx.x + 1) % 8] + bytes[63 - threadIdx.x] + halves[threadIdx.x ^ 1];
}

// All threads write the same value and then read it, so the result is determined.
extern "C" __global__ void all_write_the_same(u32 *x, u32 n)
{
    __shared__ u32 limit;
    limit = n * 2;
    u32 own = limit;
    __syncthreads();
    if (own > threadIdx.x) {
        limit = 7;
    }
    __syncthreads();
    x[threadIdx.x] = own + limit;
}

// Threads that exit before barriers of the other threads.
extern "C" __global__ void early_exit(u32 *x, u32 n)
{
    __shared__ u32 tile[64];
    tile[threadIdx.x] = threadIdx.x;
    if (threadIdx.x % 3 == n % 3) {
        x[threadIdx.x] = 0;
        return;
    }
    __syncthreads();
    x[threadIdx.x] = tile[63 - threadIdx.x] + __syncthreads_count(threadIdx.x > 10);
}

// Barriers that lanes of a warp reach on different paths, one after the other.
extern "C" __global__ void late_lanes(u32 *x, u32 n)
{
    __shared__ u32 tile[64];
    u32 value = threadIdx.x;
    for (u32 i = 0; i < threadIdx.x % 7; i++) {
        value = value * 5 + n;
    }
    tile[threadIdx.x] = value;
    if (threadIdx.x % 2) {
        value += 100;
    }
    __syncthreads();
    x[threadIdx.x] = tile[(threadIdx.x + 32) % 64] + value;
}

struct Pair {
    u32 first;
    u8 tag;
    unsigned long long second;
};

__device__ __noinline__ Pair swapped(Pair pair, u32 *sum)
{
    u32 digits[4];
    for (u32 i = 0; i < 4; i++) {
        digits[i] = pair.first >> (8 * i);
    }
    *sum += digits[pair.tag % 4];
    Pair back;
    back.first = (u32)pair.second;
    back.tag = pair.tag + 1;
    back.second = pair.first;
    return back;
}

__device__ __noinline__ u32 fold(const u32 *values, u32 count, u32 *scratch)
{
    if (count == 1) {
        scratch[0] = values[0];
        return scratch[0];
    }
    u32 halves[2];
    return fold(values, count / 2, &halves[0]) + fold(values + count / 2, count - count / 2, &halves[1])
        + halves[0] * 0 + (scratch[0] = halves[1]) * 0;
}

// Structs by value, pointers to the caller's memory, recursion.
extern "C" __global__ void calls(u32 *x, u32 n)
{
    u32 values[9], sum = 0, scratch[1];
    for (u32 i = 0; i < 9; i++) {
        values[i] = i * threadIdx.x + n;
    }
    Pair pair = {threadIdx.x, (u8)n, 5};
    for (u32 i = 0; i < n % 5 + 1; i++) {
        pair = swapped(pair, &sum);
    }
    x[threadIdx.x] = fold(values, 9, scratch) + sum + (u32)pair.second + pair.tag + scratch[0];
    if (threadIdx.x == 0) {
        printf("%u of %s\n", pair.first, "calls");
    }
}
