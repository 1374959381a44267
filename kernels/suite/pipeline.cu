// Asynchronous copies to shared memory, and split barriers.
// compile nvrtc12.9-sm_80 nvrtc13.0-sm_90 nvcc13.0-sm_80 clang19-sm_80 nvrtc13.0-sm_120
#include <cuda/barrier>
#include <cuda_pipeline.h>
typedef unsigned u32;

// Two stages of sixteen bytes per thread.
// case double_buffer <<<2, 32>>>(in u32 bits 2048, out u32 64, u32 8) ref double_buffer
extern "C" __global__ void double_buffer(const uint4* in, u32* out, u32 tiles) {
    __shared__ uint4 buffers[2][32];
    u32 t = threadIdx.x, sum = 0;
    const uint4* mine = in + blockIdx.x * tiles * 32;
    __pipeline_memcpy_async(&buffers[0][t], &mine[t], sizeof(uint4));
    __pipeline_commit();
    for (u32 k = 0; k < tiles; k++) {
        if (k + 1 < tiles) __pipeline_memcpy_async(&buffers[(k + 1) & 1][t], &mine[(k + 1) * 32 + t], sizeof(uint4));
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        uint4 v = buffers[k & 1][31 - t];
        sum = sum * 31 + (v.x ^ v.y ^ v.z ^ v.w);
        __syncthreads();
    }
    out[blockIdx.x * 32 + t] = sum;
}

// Four and eight bytes, and zeros where nothing is read.
// case partial_copies <<<1, 64>>>(in u32 bits 192, out u32 192)
extern "C" __global__ void partial_copies(const u32* in, u32* out) {
    __shared__ u32 words[64];
    __shared__ uint2 pairs[64];
    u32 t = threadIdx.x;
    __pipeline_memcpy_async(&words[t], &in[t], 4);
    __pipeline_memcpy_async(&pairs[t], (const uint2*)(in + 64) + t, 8, t % 3 == 0 ? 8 : 0);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    out[t] = words[63 - t];
    out[64 + 2 * t] = pairs[63 - t].x, out[64 + 2 * t + 1] = pairs[63 - t].y;
}

// Early arrival, late wait: a barrier object in shared memory, for several phases.
// case split_barrier <<<2, 64>>>(in u32 bits 128, out u32 128, u32 6) ref split_barrier
extern "C" __global__ void split_barrier(const u32* in, u32* out, u32 rounds) {
    using Barrier = cuda::barrier<cuda::thread_scope_block>;
    __shared__ __align__(8) char storage[sizeof(Barrier)];
    __shared__ u32 values[2][64];
    Barrier* barrier = (Barrier*)storage;
    u32 t = threadIdx.x, x = in[blockIdx.x * 64 + t];
    if (t == 0) init(barrier, 64);
    __syncthreads();
    for (u32 r = 0; r < rounds; r++) {
        values[r & 1][t] = x;
        auto token = barrier->arrive();
        u32 meanwhile = x * 5 + r;
        barrier->wait(static_cast<Barrier::arrival_token&&>(token));
        x = meanwhile + values[r & 1][(t + 17) % 64];
        barrier->arrive_and_wait();
    }
    out[blockIdx.x * 64 + t] = x;
}
