// Every function of single precision, the intrinsics, and arithmetic in all roundings.
// compile nvrtc12.9-sm_80 nvrtc13.0-sm_90-fast clang19-sm_80 nvrtc13.0-sm_120-fast
typedef unsigned u32;

#define UNARY(F) \
    F(sinf) F(cosf) F(tanf) F(asinf) F(acosf) F(atanf) F(sinhf) F(coshf) F(tanhf) F(asinhf) F(acoshf) F(atanhf) F(expf) F(exp2f) \
    F(exp10f) F(expm1f) F(logf) F(log2f) F(log10f) F(log1pf) F(logbf) F(sqrtf) F(rsqrtf) F(cbrtf) F(rcbrtf) F(erff) F(erfcf) \
    F(erfinvf) F(erfcinvf) F(erfcxf) F(normcdff) F(normcdfinvf) F(lgammaf) F(tgammaf) F(j0f) F(j1f) F(y0f) F(y1f) F(sinpif) F(cospif) \
    F(ceilf) F(floorf) F(truncf) F(rintf) F(roundf) F(nearbyintf) F(fabsf) F(cyl_bessel_i0f) F(cyl_bessel_i1f)
#define FAST(F) F(__sinf) F(__cosf) F(__tanf) F(__expf) F(__exp10f) F(__logf) F(__log2f) F(__log10f) F(__saturatef) F(__frsqrt_rn)
#define BINARY(F) \
    F(powf) F(atan2f) F(hypotf) F(rhypotf) F(fmodf) F(remainderf) F(fdimf) F(fmaxf) F(fminf) F(copysignf) F(nextafterf) F(__fdividef) F(__powf)

// Results of function k start at k * n.
// case unary_float <<<2x49, 128>>>(in f32 lin:-3:3 256, out f32 12544, u32 256)
// case unary_float@wide <<<1x49, 128>>>(in f32 wide 128, out f32 6272, u32 128)
// case unary_float@special <<<1x49, 128>>>(in f32 special 128, out f32 6272, u32 128)
extern "C" __global__ void unary_float(const float* in, float* out, u32 n) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, k = blockIdx.y, at = 0;
    float x = in[i];
    out += k * n + i;
#define CASE(f) if (k == at++) *out = f(x);
    UNARY(CASE)
}

// case fast_float <<<2x10, 128>>>(in f32 lin:0.01:6 256, out f32 2560, u32 256)
// case fast_float@special <<<1x10, 128>>>(in f32 special 128, out f32 1280, u32 128)
extern "C" __global__ void fast_float(const float* in, float* out, u32 n) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, k = blockIdx.y, at = 0;
    float x = in[i];
    out += k * n + i;
    FAST(CASE)
}
#undef CASE

// case binary_float <<<2x13, 128>>>(in f32 pos 256, in f32 wide 256, out f32 3328, u32 256)
// The driver fuses products and sums that PTX leaves without a rounding, and what is fused passes on another NaN;
// assembled by `ptxas -fmad=false`, every bit is the same on the H200.
// case binary_float@special <<<2x13, 128>>>(in f32 special 256, in f32 unit 256, out f32 3328, u32 256) ulp 1
extern "C" __global__ void binary_float(const float* a, const float* b, float* out, u32 n) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, k = blockIdx.y, at = 0;
    float x = a[i], y = b[i];
    out += k * n + i;
#define CASE(f) if (k == at++) *out = f(x, y);
    BINARY(CASE)
}

// The driver fuses products and sums that PTX leaves without a rounding; assembled by `ptxas -fmad=false`, every bit
// is the same on the H200.
// case mixed_float <<<2, 64>>>(in f32 wide 128, out f32 1280, out i32 512) ulp 1
extern "C" __global__ void mixed_float(const float* in, float* out, int* integers) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    float x = in[i], whole, sine, cosine;
    int exponent, quotient;
    out[i] = frexpf(x, &exponent);
    out[n + i] = ldexpf(x, (int)i - 64);
    out[2 * n + i] = modff(x, &whole);
    out[3 * n + i] = whole;
    sincosf(x, &sine, &cosine);
    out[4 * n + i] = sine + 2 * cosine;
    sincospif(x, &sine, &cosine);
    out[5 * n + i] = sine - cosine;
    out[6 * n + i] = remquof(x, 1.75f, &quotient);
    out[7 * n + i] = scalbnf(x, 3) + powf(x, (int)(i % 9) - 4);
    out[8 * n + i] = norm3df(x, 0.5f, -2.0f) + rnorm4df(x, 1.0f, 2.0f, 3.0f);
    out[9 * n + i] = jnf(2, x) + ynf(3, fabsf(x));
    integers[i] = exponent + 1000 * (quotient & 7) + 100000 * ilogbf(x);
    integers[n + i] = (int)lrintf(x);
    integers[2 * n + i] = (int)lroundf(x);
    integers[3 * n + i] = isnan(x) | isinf(x) << 1 | (signbit(x) != 0) << 2 | (isfinite(x) != 0) << 3;
}

// The four roundings of add, sub, mul, div, fma, sqrt and rcp.
// case rounded_float <<<4, 64>>>(in f32 wide 256, in f32 special 256, out f32 7168)
extern "C" __global__ void rounded_float(const float* a, const float* b, float* out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    float x = a[i], y = b[i], z = a[n - 1 - i];
    out += i;
#define ROUND(r) \
    *out = __fadd_##r(x, y), out += n, *out = __fsub_##r(x, y), out += n, *out = __fmul_##r(x, y), out += n, \
    *out = __fdiv_##r(x, y), out += n, *out = __fmaf_##r(x, y, z), out += n, *out = __fsqrt_##r(fabsf(y)), out += n, \
    *out = __frcp_##r(x), out += n;
    ROUND(rn) ROUND(rz) ROUND(ru) ROUND(rd)
}

// Divisions, square roots and reciprocals.
// case quotients <<<4, 64>>>(in f32 wide 256, in f32 wide 256, out f32 1024, out f64 256)
extern "C" __global__ void quotients(const float* a, const float* b, float* out, double* wide) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = a[i], y = b[i];
    out[i] = x / y;
    out[256 + i] = 1 / y;
    out[512 + i] = sqrtf(fabsf(x));
    out[768 + i] = 1 / sqrtf(fabsf(y));
    wide[i] = (double)x / y;
}
