// Asynchronous copies and their barriers, with libcu++ and written by hand.
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/pipeline>
namespace cg = cooperative_groups;
using block_barrier = cuda::barrier<cuda::thread_scope_block>;

// Sums of columns of 1024 numbers each, loaded 256 at a time through a shared pipeline of two stages.
extern "C" __global__ void pipeline(const int *in, const void *, const void *, int *out) {
    constexpr int STAGES = 2, PART = 256;
    __shared__ int room[STAGES][PART];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, STAGES> state;
    auto group = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(group, &state);
    in += blockIdx.x * 1024;
    int sum = 0;
    for (int part = 0, ahead = 0; part < 4; part++) {
        for (; ahead < 4 && ahead < part + STAGES; ahead++) {
            pipe.producer_acquire();
            cuda::memcpy_async(group, room[ahead % STAGES], in + ahead * PART, sizeof(int) * PART, pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        for (int i = threadIdx.x; i < PART; i += blockDim.x) sum += room[part % STAGES][PART - 1 - i] * (i + part);
        pipe.consumer_release();
    }
    atomicAdd(out + blockIdx.x, sum);
}

// A pipeline per thread.
extern "C" __global__ void own_pipeline(const int4 *in, const void *, const void *, int4 *out) {
    __shared__ int4 room[2][128];
    auto pipe = cuda::make_pipeline();
    int t = threadIdx.x;
    in += blockIdx.x * 512, out += blockIdx.x * 512;
    for (int part = 0; part < 5; part++) {
        if (part < 4) {
            pipe.producer_acquire();
            cuda::memcpy_async(&room[part % 2][t], in + part * 128 + t, cuda::aligned_size_t<16>(16), pipe);
            pipe.producer_commit();
        }
        if (part > 0) {
            if (part < 4) cuda::pipeline_consumer_wait_prior<1>(pipe);
            else cuda::pipeline_consumer_wait_prior<0>(pipe);
            int4 v = room[(part - 1) % 2][t];
            out[(part - 1) * 128 + t] = make_int4(v.w, v.z, v.y, v.x);
            pipe.consumer_release();
        }
    }
}

// Phases of a barrier: threads pass numbers around a ring.
extern "C" __global__ void ring(const int *in, const void *, const void *, int *out) {
    __shared__ int room[2][128];
    __shared__ block_barrier barrier;
    if (threadIdx.x == 0) init(&barrier, blockDim.x);
    __syncthreads();
    int value = in[threadIdx.x];
    for (int round = 0; round < 10; round++) {
        room[round % 2][threadIdx.x] = value;
        auto token = barrier.arrive();
        value = value * 3 + round;
        barrier.wait(std::move(token));
        value ^= room[round % 2][(threadIdx.x + 1 + round) % blockDim.x];
    }
    if (threadIdx.x < 32) barrier.arrive_and_drop();
    else barrier.arrive_and_wait();
    out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

// A copy that completes at a barrier: by cp.async, or in bulk where supported.
extern "C" __global__ void copy_and_wait(const int *in, const void *, const void *, int *out) {
    __shared__ alignas(16) int room[512];
    __shared__ block_barrier barrier;
    auto group = cg::this_thread_block();
    if (threadIdx.x == 0) init(&barrier, blockDim.x);
    group.sync();
    in += blockIdx.x * 512;
    cuda::memcpy_async(group, room, in, cuda::aligned_size_t<16>(sizeof(int) * 512), barrier);
    barrier.arrive_and_wait();
    for (int i = threadIdx.x; i < 512; i += blockDim.x) out[blockIdx.x * 512 + i] = room[511 - i];
}

#if __CUDA_ARCH__ >= 900
namespace bulk = cuda::device::experimental;

// Bulk copies to shared memory and back.
extern "C" __global__ void there_and_back(const int *in, const void *, const void *, int *out) {
    __shared__ alignas(128) int room[1024];
    __shared__ block_barrier barrier;
    int from = blockIdx.x * 1024;
    if (threadIdx.x == 0) {
        init(&barrier, blockDim.x);
        cuda::device::experimental::fence_proxy_async_shared_cta();
    }
    __syncthreads();
    block_barrier::arrival_token token;
    if (threadIdx.x == 0) {
        bulk::cp_async_bulk_global_to_shared(room, in + from, sizeof(room), barrier);
        token = cuda::device::barrier_arrive_tx(barrier, 1, sizeof(room));
    } else {
        token = barrier.arrive();
    }
    barrier.wait(std::move(token));
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) room[i] = room[i] * 2 + 1;
    bulk::fence_proxy_async_shared_cta();
    __syncthreads();
    if (threadIdx.x == 0) {
        bulk::cp_async_bulk_shared_to_global(out + from, room, sizeof(room));
        bulk::cp_async_bulk_commit_group();
        bulk::cp_async_bulk_wait_group_read<0>();
    }
}

__device__ unsigned address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ void wait_parity(unsigned long long *barrier, unsigned parity) {
    asm volatile("{\n.reg .pred done;\nAGAIN:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra GO;\nbra AGAIN;\nGO:\n}" ::"r"(address(barrier)), "r"(parity) : "memory");
}

// One warp loads and others consume, through four stages with a full and an empty barrier each.
extern "C" __global__ void specialised(const int *in, const void *, const void *, int *out) {
    constexpr int STAGES = 4, PART = 128, PARTS = 24;
    __shared__ alignas(128) int room[STAGES][PART];
    __shared__ unsigned long long full[STAGES], empty[STAGES];
    unsigned consumers = blockDim.x / 32 - 1;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&full[s])));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(&empty[s])), "r"(consumers));
        }
        asm volatile("fence.mbarrier_init.release.cluster;");
    }
    __syncthreads();
    in += blockIdx.x * PART * PARTS;
    if (threadIdx.x < 32) {
        unsigned leader;
        asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(leader));
        if (leader) {
#pragma unroll 1
            for (int part = 0; part < PARTS; part++) {
                int s = part % STAGES;
                wait_parity(&empty[s], part / STAGES % 2 ^ 1);
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(&full[s])),
                             "n"(PART * 4) : "memory");
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                             ::"r"(address(room[s])), "l"(in + part * PART), "n"(PART * 4), "r"(address(&full[s]))
                             : "memory");
            }
        }
    } else {
        int sum = 0;
#pragma unroll 1
        for (int part = 0; part < PARTS; part++) {
            int s = part % STAGES;
            wait_parity(&full[s], part / STAGES % 2);
            sum = sum * 5 + room[s][(threadIdx.x * 7 + part) % PART];
            __syncwarp();
            if (threadIdx.x % 32 == 0)
                asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(address(&empty[s])) : "memory");
        }
        out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
    }
}

// A cluster of one block, and matrices stored with stmatrix.
extern "C" __global__ void cluster(const int *in, const void *, const void *, int *out) {
    __shared__ alignas(16) int room[128];
    auto group = cg::this_cluster();
    room[threadIdx.x] = in[threadIdx.x];
    group.sync();
    int *mapped = group.map_shared_rank(room, 0);
    int value = mapped[127 - threadIdx.x] + group.block_rank() * 1000 + group.num_blocks() + group.thread_rank();
    group.sync();
    if (threadIdx.x < 32)
        asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(
                         address(room) + threadIdx.x % 8 * 16), "r"(value) : "memory");
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = value ^ room[threadIdx.x];
}
#endif
