// Loads and stores: widths, caches, qualifiers, spaces, unaligned bytes.
// compile nvrtc12.9-sm_80 nvrtc13.0-sm_90 clang22-sm_90 nvcc13.0-sm_75 nvrtc13.0-sm_120
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned u32;
typedef unsigned long long u64;

// case vector_copies <<<2, 64>>>(in u8 bits 8192, out u8 8192, u32 8192)
extern "C" __global__ void vector_copies(const u8* in, u8* out, u32 bytes) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    u32 quarter = bytes / 4;
    for (u32 k = i; k < quarter / 16; k += n) ((uint4*)out)[k] = ((const uint4*)in)[k];
    for (u32 k = i; k < quarter / 8; k += n) ((ushort4*)(out + quarter))[k] = ((const ushort4*)(in + quarter))[k];
    for (u32 k = i; k < quarter / 16; k += n) ((double2*)(out + 2 * quarter))[k] = ((const double2*)(in + 2 * quarter))[k];
    for (u32 k = i; k < quarter / 4; k += n) {
        uchar4 v = ((const uchar4*)(in + 3 * quarter))[k];
        ((uchar4*)(out + 3 * quarter))[k] = make_uchar4(v.w, v.z, v.y, v.x);
    }
}

// Structs of odd sizes as values, by memcpy and by members.
struct Odd {
    u8 tag;
    u16 length;
    u8 bytes[10];
};
struct __align__(16) Even {
    float a, b, c;
    u64 d;
    char e;
};

// case struct_copies <<<1, 64>>>(in u8 bits 896, out u8 896, in u8 bits 2048, out u8 2048)
extern "C" __global__ void struct_copies(const Odd* in, Odd* out, const Even* even, Even* evens) {
    Odd x = in[threadIdx.x];
    for (int k = 0; k < 5; k++) {
        u8 swap = x.bytes[k];
        x.bytes[k] = x.bytes[9 - k], x.bytes[9 - k] = swap;
    }
    out[threadIdx.x] = x;
    memcpy(&evens[threadIdx.x], &even[63 - threadIdx.x], sizeof(Even));
    memset(&evens[threadIdx.x].e, threadIdx.x, 1);
}

#if defined(__clang__)
// Its headers lack some functions. The replacements have the same effect.
#define __ldca __ldcg
#define __ldlu __ldcs
#define __stwb __stwt
#define __stcg __stwt
#define __stcs __stwt
#endif

// Every cache operator that has a function.
// case cache_operators <<<2, 64>>>(in u32 bits 768, in f32 unit 512, out u32 1536, out f32 512)
extern "C" __global__ void cache_operators(const u32* in, const float4* floats, u32* out, float4* vectors) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = __ldg(in + i) + __ldcg(in + 128 + i) + __ldca(in + 256 + i) + __ldcs(in + 384 + i) + __ldlu(in + 512 + i) + __ldcv(in + 640 + i);
    __stwb(out + 128 + i, in[i]), __stcg(out + 256 + i, in[i] + 1), __stcs(out + 384 + i, in[i] + 2), __stwt(out + 512 + i, in[i] + 3);
    __stcs((uint2*)(out + 640) + i, __ldcs((const uint2*)in + i));
    __stcg((u64*)(out + 896) + i, __ldcg((const u64*)in + i));
    __stwt((u8*)(out + 1152) + i, __ldg((const u8*)in + i));
    __stcs((short*)(out + 1280) + i, __ldca((const short*)in + i));
    __stcg((uchar4*)(out + 1408) + i, __ldg((const uchar4*)in + i));
    float4 v = __ldg(floats + i), w = __ldcs(floats + 127 - i);
    __stcg(vectors + i, make_float4(v.x, w.y, v.z, w.w));
}

// The same hints and more in PTX: eviction priorities, prefetches, cache policies.
// case cache_hints <<<1, 64>>>(in u32 bits 256, out u32 256)
extern "C" __global__ void cache_hints(const u32* in, u32* out) {
#if __CUDA_ARCH__ >= 800
    u32 t = threadIdx.x, a, b, c, d;
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %0, 0.5;" : "=l"(policy));
    asm volatile("prefetch.global.L2 [%0]; prefetch.global.L1 [%0];" ::"l"(in + 64));
    asm volatile("ld.global.L1::evict_last.L2::128B.u32 %0, [%1];" : "=r"(a) : "l"(in + t));
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v2.u32 {%0, %1}, [%2];" : "=r"(b), "=r"(c) : "l"(in + 64 + 2 * t));
    asm volatile("ld.global.L2::cache_hint.u32 %0, [%1], %2;" : "=r"(d) : "l"(in + 192 + t), "l"(policy));
    asm volatile("st.global.L1::evict_first.u32 [%0], %1;" ::"l"(out + t), "r"(a) : "memory");
    asm volatile("st.global.L2::cache_hint.v2.u32 [%0], {%1, %2}, %3;" ::"l"(out + 64 + 2 * t), "r"(b), "r"(c), "l"(policy) : "memory");
    asm volatile("red.global.add.L2::cache_hint.u32 [%0], %1, %2;" ::"l"(out + 192 + t), "r"(d), "l"(policy) : "memory");
    asm volatile("applypriority.global.L2::evict_normal [%0], 128;" ::"l"(in));
#else
    for (u32 k = threadIdx.x; k < 256; k += 64) out[k] = in[k];
#endif
}

__device__ u32 scratch[64];
__constant__ u32 constants[64] = {3, 1, 4, 1, 5, 9, 2, 6};

// One function with pointers to every space.
__device__ __noinline__ u32 sum_of(const u32* p, u32 n) {
    u32 sum = 0;
    for (u32 k = 0; k < n; k++) sum = sum * 33 + p[k];
    return sum;
}

// case generic_pointers <<<1, 32>>>(in u32 bits 64, out u32 160)
extern "C" __global__ void generic_pointers(const u32* in, u32* out) {
    __shared__ u32 shared[64];
    u32 local[8], t = threadIdx.x;
    for (u32 k = 0; k < 8; k++) local[k] = in[k] ^ t;
    shared[t] = in[t], shared[32 + t] = in[63 - t];
    scratch[t] = in[t] + 1, scratch[32 + t] = t;
    __syncthreads();
    const u32* places[4] = {shared, scratch, constants, local};
    out[t] = sum_of(places[t % 4] + (t % 4 == 3 ? 0 : t / 2), 8);
    out[32 + t] = __isGlobal(places[t % 4]) + 2 * __isShared(places[t % 4]) + 4 * __isLocal(places[t % 4]) + 8 * (t % 4 == 2);
    out[64 + t] = sum_of(in + t, 8);
    u32 offset = (u32)__cvta_generic_to_shared(shared + t), x;
    asm volatile("ld.shared.u32 %0, [%1+64];" : "=r"(x) : "r"(offset & ~0u));
    out[96 + t] = t < 32 ? x : 0;
    out[128 + t] = *(const u32*)__cvta_shared_to_generic(__cvta_generic_to_shared(&shared[63 - t]));
}

// Bytes at all alignments, strings, and a checksum over them.
// case unaligned <<<2, 32>>>(in u8 bits 2100, out u32 128)
extern "C" __global__ void unaligned(const u8* in, u32* out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, a = 1, b = 0, word;
    const u8* p = in + 31 * i + i % 7;
    for (u32 k = 0; k < 64; k++) a = (a + p[k]) % 65521, b = (b + a) % 65521;
    out[i] = b << 16 | a;
    memcpy(&word, p + 1, 4);
    out[64 + i] = word;
}

// Volatile and relaxed accesses: one warp reads what another one wrote, after a fence, in shared and global memory.
// case message_passing <<<1, 64>>>(in u32 bits 640, scratch u32 64, out u32 320)
extern "C" __global__ void message_passing(const u32* in, u32* box, u32* out) {
    __shared__ volatile u32 flag, data[32];
    u32 lane = threadIdx.x % 32;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    for (u32 round = 0; round < 10; round++) {
        if (threadIdx.x < 32) {
            data[lane] = in[round * 64 + lane];
            box[lane] = in[round * 64 + 32 + lane];
            __threadfence();
            __syncwarp();
            if (lane == 0) flag = 2 * round + 1;
            while (flag != 2 * round + 2) {}
            __syncwarp();
        } else {
            while (flag != 2 * round + 1) {}
            __syncwarp();
            __threadfence();
            out[round * 32 + lane] = data[31 - lane] + *(volatile u32*)&box[lane];
            __syncwarp();
            if (lane == 0) flag = 2 * round + 2;
            while (flag != 2 * round + 2) {}
            __syncwarp();
        }
    }
}
