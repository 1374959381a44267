// All conversions.
// compile nvrtc12.9-sm_75 nvrtc13.0-sm_90 nvrtc13.0-sm_90-fast clang22-sm_90 nvcc13.0-sm_80 nvrtc13.0-sm_120
#include <cuda_fp16.h>
#include <cuda_bf16.h>
typedef unsigned u32;
typedef unsigned long long u64;

#define MODES(F) F(rn) F(rz) F(ru) F(rd)

// case float_to_integers <<<4, 64>>>(in f32 special 256, out i32 1024, out u32 1024, out i64 1024, out u64 1024)
extern "C" __global__ void float_to_integers(const float* in, int* i32, u32* u32s, long long* i64, u64* u64s) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, k = i;
    float x = in[i];
#define MODE(m) i32[k] = __float2int_##m(x), u32s[k] = __float2uint_##m(x), i64[k] = __float2ll_##m(x), u64s[k] = __float2ull_##m(x), k += 256;
    MODES(MODE)
#undef MODE
}

// case double_to_others <<<4, 64>>>(in f64 special 256, out i32 1024, out u32 1024, out i64 1024, out u64 1024, out f32 1024)
extern "C" __global__ void double_to_others(const double* in, int* i32, u32* u32s, long long* i64, u64* u64s, float* f32) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, k = i;
    double x = in[i];
#define MODE(m) \
    i32[k] = __double2int_##m(x), u32s[k] = __double2uint_##m(x), i64[k] = __double2ll_##m(x), u64s[k] = __double2ull_##m(x), \
    f32[k] = __double2float_##m(x), k += 256;
    MODES(MODE)
#undef MODE
}

// case integers_to_floats <<<4, 64>>>(in u64 special 256, out f32 4096, out f64 2048, out f64 512)
extern "C" __global__ void integers_to_floats(const u64* in, float* f32, double* f64, double* exact) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, k = i, j = i;
    u64 x = in[i];
#define MODE(m) \
    f32[k] = __int2float_##m((int)x), f32[k + 256] = __uint2float_##m((u32)x), f32[k + 512] = __ll2float_##m((long long)x), \
    f32[k + 768] = __ull2float_##m(x), k += 1024, f64[j] = __ll2double_##m((long long)x), f64[j + 256] = __ull2double_##m(x), j += 512;
    MODES(MODE)
#undef MODE
    exact[i] = __int2double_rn((int)x), exact[256 + i] = __uint2double_rn((u32)x);
}

// case narrow_casts <<<4, 64>>>(in f32 special 256, in u64 special 256, out i8 1024, out i16 1024, out u64 1024)
extern "C" __global__ void narrow_casts(const float* floats, const u64* integers, signed char* bytes, short* shorts, u64* wide) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = fminf(fmaxf(floats[i], -100.0f), 100.0f);
    u64 y = integers[i];
    bytes[i] = (signed char)x, bytes[256 + i] = (signed char)y, bytes[512 + i] = (signed char)(unsigned char)fabsf(x), bytes[768 + i] = x > 0;
    shorts[i] = (short)(300 * x), shorts[256 + i] = (short)y, shorts[512 + i] = (short)(unsigned short)fabsf(x), shorts[768 + i] = (signed char)y;
    wide[i] = (u64)(long long)(signed char)y, wide[256 + i] = (u64)(unsigned char)y, wide[512 + i] = (u64)(long long)(short)y;
    wide[768 + i] = (u64)(long long)(int)y;
}

// case halves_and_numbers <<<8, 64>>>(in f16 special 512, out f32 512, out i32 4096, out i64 2048, out i16 2048)
extern "C" __global__ void halves_and_numbers(const __half* in, float* f32, int* i32, long long* i64, short* i16) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, k = i, j = i;
    __half x = in[i];
    f32[i] = __half2float(x);
#define MODE(m) \
    i32[k] = __half2int_##m(x), i32[k + 512] = (int)__half2uint_##m(x), k += 1024, i64[j] = __half2ll_##m(x), i16[j] = __half2short_##m(x), j += 512;
    MODES(MODE)
#undef MODE
}

// case numbers_to_halves <<<8, 64>>>(in f32 special 512, in u64 special 512, out f16 2048, out f16 4096, out f16 512, out f16 1024)
extern "C" __global__ void numbers_to_halves(const float* floats, const u64* integers, __half* out, __half* from, __half* f64, __half2* packed) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, k = i, j = i;
    float x = floats[i];
    u64 y = integers[i];
#define MODE(m) \
    out[k] = __float2half_##m(x), k += 512, from[j] = __int2half_##m((int)y), from[j + 512] = __ull2half_##m(y), j += 1024;
    MODES(MODE)
#undef MODE
    f64[i] = __double2half((double)x * 1.0000001);
    packed[i] = __floats2half2_rn(x, floats[511 - i]);
}

// case brain_floats <<<8, 64>>>(in f32 special 512, in bf16 special 512, out bf16 2048, out f32 512, out bf16 1024, out i32 2048)
extern "C" __global__ void brain_floats(const float* floats, const __nv_bfloat16* in, __nv_bfloat16* out, float* wide, __nv_bfloat162* packed, int* integers) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = floats[i];
    out[i] = __float2bfloat16_rn(x), out[512 + i] = __float2bfloat16_rz(x), out[1024 + i] = __float2bfloat16_ru(x), out[1536 + i] = __float2bfloat16_rd(x);
    wide[i] = __bfloat162float(in[i]);
    packed[i] = __floats2bfloat162_rn(x, floats[511 - i]);
    integers[i] = __bfloat162int_rz(in[i]), integers[512 + i] = __bfloat162int_rn(in[i]);
    integers[1024 + i] = __bfloat162int_ru(in[i]), integers[1536 + i] = __bfloat162int_rd(in[i]);
}
