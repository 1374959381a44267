// Cooperative groups.
// compile nvrtc12.9-sm_80 nvrtc13.0-sm_90 clang22-sm_80 nvcc13.0-sm_75 nvrtc13.0-sm_120
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;
typedef unsigned u32;

template <u32 N> __device__ u32 tile_sum(cg::thread_block block, u32 x) {
    auto tile = cg::tiled_partition<N>(block);
    for (u32 step = N / 2; step; step /= 2) x += tile.shfl_down(x, step);
    return tile.shfl(x, 0) * 100 + tile.meta_group_rank() * 10 + (tile.thread_rank() & 7);
}

// case tiles <<<2, 64>>>(in u32 below:100 128, out u32 768)
extern "C" __global__ void tiles(const u32* in, u32* out) {
    auto block = cg::this_thread_block();
    u32 n = gridDim.x * blockDim.x, i = blockIdx.x * blockDim.x + threadIdx.x, x = in[i];
    out[i] = tile_sum<32>(block, x), out[n + i] = tile_sum<16>(block, x), out[2 * n + i] = tile_sum<8>(block, x);
    out[3 * n + i] = tile_sum<4>(block, x), out[4 * n + i] = tile_sum<2>(block, x);
    out[5 * n + i] = block.thread_rank() + 1000 * block.group_index().x + block.num_threads();
}

// case group_algorithms <<<2, 64>>>(in u32 below:1000 128, out u32 640)
extern "C" __global__ void group_algorithms(const u32* in, u32* out) {
    auto tile = cg::tiled_partition<16>(cg::this_thread_block());
    u32 n = gridDim.x * blockDim.x, i = blockIdx.x * blockDim.x + threadIdx.x, x = in[i];
    out[i] = cg::reduce(tile, x, cg::plus<u32>()), out[n + i] = cg::reduce(tile, x, cg::greater<u32>());
    out[2 * n + i] = cg::inclusive_scan(tile, x, cg::plus<u32>()), out[3 * n + i] = cg::exclusive_scan(tile, x);
    out[4 * n + i] = tile.ballot(x & 1) + tile.any(x > 990) + 2 * tile.all(x < 990) + 4 * tile.match_any(x & 3);
}

// Coalesced threads elect a leader that adds for all of them.
// case coalesced <<<3, 64>>>(in u32 below:10 192, inout u32 zero 10, out u32 192)
extern "C" __global__ void coalesced(const u32* in, u32* counters, u32* sizes) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, x = in[i];
    sizes[i] = 0;
    if (x & 1) {
        auto active = cg::coalesced_threads();
        auto same = cg::labeled_partition(active, (int)x);
        if (same.thread_rank() == 0) atomicAdd(&counters[x], same.size());
        sizes[i] = same.size() * 100 + active.size() + 10000 * same.shfl(same.thread_rank(), same.size() - 1);
    }
}

// case binary_groups <<<1, 64>>>(in u32 bits 64, out u32 64)
extern "C" __global__ void binary_groups(const u32* in, u32* out) {
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    u32 x = in[threadIdx.x] >> 8;
    auto half = cg::binary_partition(warp, (bool)(x & 1));
    out[threadIdx.x] = cg::reduce(half, x & 0xFFFF, cg::plus<u32>()) + half.thread_rank();
}


// All blocks wait for each other, several times: the sync of a grid, as a spin barrier.
__device__ void grid_barrier(u32* arrived, u32 blocks) {
    cg::this_thread_block().sync();
    if (threadIdx.x == 0) {
        __threadfence();
        u32 ticket = atomicAdd(arrived, 1), goal = (ticket / blocks + 1) * blocks;
        while (*(volatile u32*)arrived < goal) __nanosleep(20);
        __threadfence();
    }
    cg::this_thread_block().sync();
}

// case grid_sync <<<8, 64>>>(inout u32 iota 512, scratch u32 1, u32 12)
extern "C" __global__ void grid_sync(u32* data, u32* arrived, u32 rounds) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    for (u32 r = 0; r < rounds; r++) {
        u32 sum = *(volatile u32*)&data[(i + 65) % n] * 3 + *(volatile u32*)&data[(i + n - 130) % n];
        grid_barrier(arrived, gridDim.x);
        data[i] = sum ^ r;
        grid_barrier(arrived, gridDim.x);
    }
}
