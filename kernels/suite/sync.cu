// Locks, named barriers, block votes, clocks.
// compile nvrtc12.4-sm_80 nvrtc13.0-sm_90 clang22-sm_80 nvcc13.0-sm_75-G nvrtc13.0-sm_120
typedef unsigned u32;
typedef unsigned long long u64;

// One lock for all threads of all blocks. Lanes of a warp also compete.
// case spin_lock <<<3, 64>>>(inout u32 zero 2, scratch u32 1) ref spin_lock
extern "C" __global__ void spin_lock(volatile u32* guarded, u32* lock) {
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            guarded[0] += 1;
            guarded[1] ^= guarded[0] * 2654435761u;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}

// Tickets in order of arrival. Each lane of a block takes its turn.
// case ticket_lock <<<6, 32>>>(inout u64 zero 1, scratch u32 2)
extern "C" __global__ void ticket_lock(u64* sum, volatile u32* tickets) {
    if (threadIdx.x) return;
    u32 mine = atomicAdd((u32*)&tickets[0], 1);
    while (tickets[1] != mine) {}
    __threadfence();
    *(volatile u64*)sum = *(volatile u64*)sum + 1000 + mine;
    __threadfence();
    tickets[1] = mine + 1;
}

// One warp loads and another computes: two named barriers for full, two for empty.
// case producer_consumer <<<2, 64>>>(in u32 bits 1024, out u32 64, u32 16) ref producer_consumer
extern "C" __global__ void producer_consumer(const u32* in, u32* out, u32 rounds) {
    __shared__ u32 buffers[2][32];
    u32 lane = threadIdx.x % 32;
    const u32* mine = in + blockIdx.x * rounds * 32;
    if (threadIdx.x < 32) {
        for (u32 r = 0; r < rounds; r++) {
            u32 slot = r & 1;
            if (r >= 2) asm volatile("bar.sync %0, 64;" ::"r"(3 + slot) : "memory");
            buffers[slot][lane] = mine[r * 32 + lane];
            asm volatile("bar.arrive %0, 64;" ::"r"(1 + slot) : "memory");
        }
    } else {
        u32 sum = 0;
        for (u32 r = 0; r < rounds; r++) {
            u32 slot = r & 1;
            asm volatile("bar.sync %0, 64;" ::"r"(1 + slot) : "memory");
            sum = sum * 31 + buffers[slot][31 - lane];
            if (r + 2 < rounds) asm volatile("bar.arrive %0, 64;" ::"r"(3 + slot) : "memory");
        }
        out[blockIdx.x * 32 + lane] = sum;
    }
}

// case block_votes <<<2, 96>>>(in u32 below:100 192, out u32 576) ref block_votes
extern "C" __global__ void block_votes(const u32* in, u32* out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, x = in[i];
    out[i] = __syncthreads_count(x > 50);
    out[192 + i] = __syncthreads_and(x < 98) + 2 * __syncthreads_or(x == 3);
    u32 some;
    // Only the first two warps arrive here.
    if (threadIdx.x < 64)
        asm volatile("{ .reg .pred p; setp.gt.u32 p, %1, 30; barrier.red.popc.u32 %0, 5, 64, p; }" : "=r"(some) : "r"(x) : "memory");
    else some = 7;
    out[384 + i] = some;
}

// Time advances, also while sleeping. Only this fact is stored.
// case clocks <<<1, 32>>>(out u32 96)
extern "C" __global__ void clocks(u32* out) {
    u64 start = clock64(), timer;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(timer));
    u32 ticks = (u32)clock();
    for (u32 k = 0; k < 50; k++) __nanosleep(200);
    u64 later;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(later));
    out[threadIdx.x] = clock64() > start;
    out[32 + threadIdx.x] = later >= timer;
    out[64 + threadIdx.x] = (u32)clock() != ticks;
}

// Special registers.
// case registers <<<2x2x2, 8x4x2>>>(out u32 5632)
extern "C" __global__ void registers(u32* out) {
    u32 block = (blockIdx.z * 2 + blockIdx.y) * 2 + blockIdx.x, thread = (threadIdx.z * 4 + threadIdx.y) * 8 + threadIdx.x;
    out += (block * 64 + thread) * 11;
#define READ(at, name) asm volatile("mov.u32 %0, %%" name ";" : "=r"(out[at]));
    READ(0, "laneid") READ(1, "lanemask_eq") READ(2, "lanemask_lt") READ(3, "lanemask_le") READ(4, "lanemask_gt") READ(5, "lanemask_ge")
    READ(6, "ntid.y") READ(7, "nctaid.z") READ(8, "tid.z") READ(9, "ctaid.y")
    u32 warp = thread / 32;
    out[10] = warp * 1000 + warpSize;
}
