// Atomics of every kind and type. The results do not depend on the order of the operations.
// compile nvrtc12.9-sm_80 nvrtc13.0-sm_90 clang22-sm_80 nvcc13.0-sm_75 nvrtc13.0-sm_120
#include <cuda_fp16.h>
#include <cuda_bf16.h>
typedef unsigned short u16;
typedef unsigned u32;
typedef unsigned long long u64;
typedef long long i64;

// case atomic_integers <<<4, 64>>>(in u32 bits 256, inout u32 const:1234567 16, inout i32 zero 8) ref atomic_integers
extern "C" __global__ void atomic_integers(const u32* in, u32* u, int* s) {
    u32 x = in[blockIdx.x * blockDim.x + threadIdx.x];
    atomicAdd(&u[0], x), atomicSub(&u[1], x), atomicMin(&u[2], x), atomicMax(&u[3], x), atomicAnd(&u[4], x | 0xFFFF0), atomicOr(&u[5], x & 0xFF00FF);
    atomicXor(&u[6], x), atomicInc(&u[7], 99), atomicDec(&u[8], 77), atomicExch(&u[9], 42), atomicCAS(&u[10], 1234567, 7);
    atomicAdd_block(&u[11], 1), atomicAdd_system(&u[12], 2), atomicMax_system(&u[13], x >> 8), atomicOr_block(&u[14], 0);
    atomicAdd(&s[0], (int)x), atomicMin(&s[1], (int)x), atomicMax(&s[2], (int)x), atomicSub(&s[3], 5), atomicAnd(&s[4], -1), atomicXor(&s[5], (int)x);
    atomicExch(&s[6], -3), atomicCAS(&s[7], 0, -9);
}

// case atomic_wide <<<4, 64>>>(in u64 bits 256, inout u64 const:99 10, inout i64 zero 4)
extern "C" __global__ void atomic_wide(const u64* in, u64* u, i64* s) {
    u64 x = in[blockIdx.x * blockDim.x + threadIdx.x];
    atomicAdd(&u[0], x), atomicMin(&u[1], x), atomicMax(&u[2], x), atomicAnd(&u[3], x | 0xFFF), atomicOr(&u[4], x), atomicXor(&u[5], x);
    atomicExch(&u[6], 5), atomicCAS(&u[7], 99, 8), atomicAdd_system(&u[8], 3);
    atomicMin(&s[0], (i64)x), atomicMax(&s[1], (i64)x);
}

// case atomic_floats <<<2, 64>>>(inout f32 below:10 6, inout f64 below:10 3, inout f16 below:8 8, inout bf16 below:8 4)
extern "C" __global__ void atomic_floats(float* f, double* d, __half* h, __nv_bfloat16* b) {
    u32 t = threadIdx.x;
    atomicAdd(&f[0], (float)t), atomicAdd(&f[1], -0.5f), atomicExch(&f[2], 2.5f), atomicAdd_block(&f[3], 0.25f), atomicAdd_system(&f[4], 1);
    atomicAdd(&d[0], (double)t), atomicAdd(&d[1], 0.125);
    atomicAdd(&h[0], __float2half(0.5f)), atomicAdd((__half2*)h + 1, __floats2half2_rn(1, -1)), atomicAdd(&h[5], __float2half(1));
    atomicAdd(&b[0], __float2bfloat16(1)), atomicAdd((__nv_bfloat162*)b + 1, __floats2bfloat162_rn(1, 0.5f));
}

// The returned values: their sums do not depend on the order.
// case atomic_results <<<4, 64>>>(inout u32 zero 4, inout u64 zero 6)
extern "C" __global__ void atomic_results(u32* counters, u64* sums) {
    u32 a = atomicAdd(&counters[0], 1), b = atomicInc(&counters[1], 6), c = atomicAdd(&counters[2], 3), d = atomicXor(&counters[3], 0);
    atomicAdd(&sums[0], (u64)a), atomicAdd(&sums[1], (u64)b), atomicAdd(&sums[2], (u64)c), atomicMax(&sums[3], (u64)a), atomicAdd(&sums[4], (u64)d);
    atomicAdd(&sums[5], (u64)a * a);
}

// In shared memory, and through generic pointers to either space.
__device__ __noinline__ void bump(u32* p, u32 by) { atomicAdd(p, by); }

// case atomic_shared <<<3, 96>>>(in u32 bits 288, inout u32 zero 32, inout u64 zero 8)
extern "C" __global__ void atomic_shared(const u32* in, u32* out, u64* wide) {
    __shared__ u32 counts[16];
    __shared__ u64 sums[4];
    __shared__ float most;
    u32 t = threadIdx.x, x = in[blockIdx.x * 96 + t];
    if (t < 16) counts[t] = 0;
    if (t < 4) sums[t] = t == 1 ? ~0ull : 0;
    if (t == 0) most = 0;
    __syncthreads();
    atomicAdd(&counts[x & 7], 1), atomicMax(&counts[8], x), atomicOr(&counts[9], x & 0xF0F0), atomicInc(&counts[10], 9), atomicXor(&counts[11], x);
    atomicAdd(&sums[0], (u64)x << 8), atomicMin(&sums[1], (u64)x), atomicMax(&sums[2], (u64)x * x), atomicAdd(&most, (float)(x & 15));
    bump(t & 1 ? &counts[12] : &out[16], t);
    atomicCAS(&counts[13], 0, 5);
    __syncthreads();
    if (t < 14) atomicAdd(&out[t], counts[t]);
    if (t < 3) atomicXor(&wide[t], sums[t]);
    if (t == 0) atomicAdd(&out[15], (u32)most);
}

// Compare-and-swap of 16 bits, and loops on 32 and 64 bits: saturating sums and a product modulo a prime.
// case atomic_loops <<<2, 64>>>(in u32 below:1000 128, inout u32 const:1 3, inout u64 const:1 1) ref atomic_loops
extern "C" __global__ void atomic_loops(const u32* in, u32* words, u64* product) {
    u32 x = in[blockIdx.x * blockDim.x + threadIdx.x];
    u32 old = words[0], seen;
    do {
        seen = old;
        u32 sum = seen + x;
        old = atomicCAS(&words[0], seen, sum > 50000 ? 50000 : sum);
    } while (old != seen);
    u64 was = *product, expected;
    do {
        expected = was;
        was = atomicCAS(product, expected, expected * (x + 1) % 1000003);
    } while (was != expected);
    u16* half = (u16*)(words + 1) + 1;
    u16 before = *(volatile u16*)half, assumed;
    do {
        assumed = before;
        before = atomicCAS(half, assumed, (u16)(assumed + x));
    } while (before != assumed);
}

// Orders, scopes and vectors in PTX.
// case atomic_ptx <<<2, 32>>>(inout u32 zero 8, inout f32 zero 8)
extern "C" __global__ void atomic_ptx(u32* u, float* f) {
    u32 old;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(old) : "l"(u) : "memory");
    asm volatile("atom.relaxed.sys.max.s32 %0, [%1], %2;" : "=r"(old) : "l"(u + 1), "r"(threadIdx.x) : "memory");
    asm volatile("red.release.gpu.global.or.b32 [%0], %1;" ::"l"(u + 2), "r"(1u << threadIdx.x) : "memory");
    asm volatile("red.relaxed.cta.inc.u32 [%0], 1000;" ::"l"(u + 3) : "memory");
    asm volatile("fence.sc.gpu; fence.acq_rel.cta; membar.sys;" ::: "memory");
    asm volatile("st.release.gpu.u32 [%0], %1;" ::"l"(u + 4), "r"(7) : "memory");
    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(old) : "l"(u + 4) : "memory");
    asm volatile("st.relaxed.cta.global.u32 [%0], %1;" ::"l"(u + 5), "r"(old ? 9 : 9) : "memory");
#if __CUDA_ARCH__ >= 900
    asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(f), "f"(1.0f), "f"(2.0f) : "memory");
    asm volatile("red.global.v4.f32.add [%0], {%1, %2, %3, %4};" ::"l"(f + 4), "f"(1.0f), "f"(2.0f), "f"(3.0f), "f"(0.5f) : "memory");
#else
    atomicAdd(&f[0], 1.0f), atomicAdd(&f[1], 2.0f);
    atomicAdd(&f[4], 1.0f), atomicAdd(&f[5], 2.0f), atomicAdd(&f[6], 3.0f), atomicAdd(&f[7], 0.5f);
#endif
}
