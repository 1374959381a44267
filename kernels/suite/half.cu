// Half precision and bfloat16.
// compile nvrtc12.4-sm_80 nvrtc12.9-sm_80-fast nvrtc13.0-sm_90 clang19-sm_90 nvcc13.0-sm_90-fast nvrtc13.0-sm_120
#include <cuda_fp16.h>
#include <cuda_bf16.h>
typedef unsigned u32;

// case half_arithmetic <<<8, 64>>>(in f16 special 512, in f16 bits 512, out f16 8192, out u32 512)
extern "C" __global__ void half_arithmetic(const __half* a, const __half* b, __half* out, u32* tests) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    __half x = a[i], y = b[i], z = b[511 - i];
    out += i;
#define PUT(v) *out = (v), out += 512;
    PUT(__hadd(x, y)) PUT(__hsub(x, y)) PUT(__hmul(x, y)) PUT(__hfma(x, y, z)) PUT(__hneg(x)) PUT(__habs(x)) PUT(__hdiv(x, y))
    PUT(__hadd_sat(x, y)) PUT(__hsub_sat(x, y)) PUT(__hmul_sat(x, y)) PUT(__hfma_sat(x, y, z)) PUT(__hmax(x, y)) PUT(__hmin(x, y))
    PUT(hceil(x)) PUT(hfloor(x)) PUT(hrint(x))
    tests[i] = __heq(x, y) | __hne(x, y) << 1 | __hlt(x, y) << 2 | __hle(x, y) << 3 | __hgt(x, y) << 4 | __hge(x, y) << 5 |
               __hequ(x, y) << 6 | __hneu(x, y) << 7 | __hltu(x, y) << 8 | __hgtu(x, y) << 9 | __hisnan(x) << 10 | (__hisinf(x) & 3) << 11;
}

// case half2_arithmetic <<<4, 64>>>(in u32 bits 256, in u32 bits 256, out u32 5120)
extern "C" __global__ void half2_arithmetic(const __half2* a, const __half2* b, u32* out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    __half2 x = a[i], y = b[i], z = b[255 - i];
    out += i;
    auto bits = [](__half2 v) { return *(u32*)&v; };
#define PUT2(v) *out = bits(v), out += 256;
    PUT2(__hadd2(x, y)) PUT2(__hsub2(x, y)) PUT2(__hmul2(x, y)) PUT2(__hfma2(x, y, z)) PUT2(__hneg2(x)) PUT2(__habs2(x))
    PUT2(__h2div(x, y)) PUT2(__hadd2_sat(x, y)) PUT2(__hfma2_sat(x, y, z)) PUT2(__hmax2(x, y)) PUT2(__hmin2(x, y)) PUT2(h2floor(x))
    PUT2(__heq2(x, y)) PUT2(__hlt2(x, y)) PUT2(__hgeu2(x, y)) PUT2(__lowhigh2highlow(x)) PUT2(__highs2half2(x, y)) PUT2(__hisnan2(x))
    *out = __hblt2(x, y) | __hbeq2(x, x) << 1 | __hbgtu2(x, y) << 2, out += 256;
    *out = __heq2_mask(x, y) ^ __hle2_mask(x, y);
}

// case half_functions <<<4, 64>>>(in f16 lin:0.05:8 256, out f16 2560)
extern "C" __global__ void half_functions(const __half* in, __half* out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    __half x = in[i];
    out += i;
#undef PUT
#define PUT(v) *out = (v), out += 256;
    PUT(hexp(x)) PUT(hexp2(x)) PUT(hexp10(x)) PUT(hlog(x)) PUT(hlog2(x)) PUT(hlog10(x)) PUT(hsin(x)) PUT(hcos(x)) PUT(hsqrt(x)) PUT(hrsqrt(x))
}

// case brain_arithmetic <<<8, 64>>>(in bf16 special 512, in bf16 bits 512, out bf16 5120, out u32 512)
extern "C" __global__ void brain_arithmetic(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* out, u32* tests) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    __nv_bfloat16 x = a[i], y = b[i], z = b[511 - i];
    out += i;
#undef PUT
#define PUT(v) *out = (v), out += 512;
    PUT(__hadd(x, y)) PUT(__hsub(x, y)) PUT(__hmul(x, y)) PUT(__hfma(x, y, z)) PUT(__hneg(x)) PUT(__habs(x)) PUT(__hmax(x, y)) PUT(__hmin(x, y))
    PUT(__hadd_sat(x, y)) PUT(hfloor(x))
    tests[i] = __heq(x, y) | __hne(x, y) << 1 | __hlt(x, y) << 2 | __hleu(x, y) << 3 | __hisnan(x) << 4;
}

// case brain2_arithmetic <<<4, 64>>>(in u32 bits 256, in u32 bits 256, out u32 2304)
extern "C" __global__ void brain2_arithmetic(const __nv_bfloat162* a, const __nv_bfloat162* b, u32* out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    __nv_bfloat162 x = a[i], y = b[i], z = b[255 - i];
    out += i;
    auto bits = [](__nv_bfloat162 v) { return *(u32*)&v; };
    PUT2(__hadd2(x, y)) PUT2(__hsub2(x, y)) PUT2(__hmul2(x, y)) PUT2(__hfma2(x, y, z)) PUT2(__hneg2(x)) PUT2(__habs2(x)) PUT2(__hmax2(x, y))
    PUT2(__hmin2(x, y)) PUT2(__heq2(x, y))
}

// A matrix product in half2 with fused multiply-adds in half precision: two columns per thread.
// case half_gemm <<<2x2, 8x16>>>(in f16 unit 1024, in u32 zero 1, in f16 unit 1024, out f16 1024, u32 32)
extern "C" __global__ void half_gemm(const __half* a, const u32* unused, const __half2* b, __half2* c, u32 n) {
    u32 pair = blockIdx.x * 8 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
    __half2 sum = __float2half2_rn(0);
    for (u32 k = 0; k < n; k++) sum = __hfma2(__half2half2(a[row * n + k]), b[k * n / 2 + pair], sum);
    c[row * n / 2 + pair] = sum;
}

// A sum of halves by shuffles of half2, and atomics of half and half2 on small integers.
// case half_sums <<<2, 64>>>(in f16 below:8 256, out f16 4, inout f16 zero 4)
extern "C" __global__ void half_sums(const __half2* in, __half* sums, __half* totals) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    __half2 x = in[i];
    for (u32 step = 16; step; step /= 2) x = __hadd2(x, __shfl_xor_sync(~0u, x, step));
    if (threadIdx.x % 32 == 0) sums[i / 32] = __hadd(__low2half(x), __high2half(x));
    atomicAdd((__half2*)totals, __halves2half2(__float2half((float)(i & 1)), __float2half(1)));
    atomicAdd(totals + 2, __float2half(2));
}
