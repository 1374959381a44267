// Every function of double precision, and arithmetic in all roundings.
// compile nvrtc13.0-sm_90 clang19-sm_80 nvrtc13.0-sm_120
typedef unsigned u32;

#define UNARY(F) \
    F(sin) F(cos) F(tan) F(asin) F(acos) F(atan) F(sinh) F(cosh) F(tanh) F(asinh) F(acosh) F(atanh) F(exp) F(exp2) F(exp10) \
    F(expm1) F(log) F(log2) F(log10) F(log1p) F(logb) F(sqrt) F(rsqrt) F(cbrt) F(rcbrt) F(erf) F(erfc) F(erfinv) F(erfcinv) F(erfcx) \
    F(normcdf) F(normcdfinv) F(lgamma) F(tgamma) F(j0) F(j1) F(y0) F(y1) F(sinpi) F(cospi) F(ceil) F(floor) F(trunc) F(rint) \
    F(round) F(nearbyint) F(fabs) F(cyl_bessel_i0) F(cyl_bessel_i1)
#define BINARY(F) \
    F(pow) F(atan2) F(hypot) F(rhypot) F(fmod) F(remainder) F(fdim) F(fmax) F(fmin) F(copysign) F(nextafter)

// Results of function k start at k * n.
// case unary_double <<<2x49, 128>>>(in f64 lin:-3:3 256, out f64 12544, u32 256)
// case unary_double@wide <<<1x49, 128>>>(in f64 wide 128, out f64 6272, u32 128)
// The driver fuses products and sums that PTX leaves without a rounding, and what is fused passes on another NaN;
// assembled by `ptxas -fmad=false`, every bit is the same on the H200.
// case unary_double@special <<<1x49, 128>>>(in f64 special 128, out f64 6272, u32 128) ulp 1
extern "C" __global__ void unary_double(const double* in, double* out, u32 n) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, k = blockIdx.y, at = 0;
    double x = in[i];
    out += k * n + i;
#define CASE(f) if (k == at++) *out = f(x);
    UNARY(CASE)
#undef CASE
}

// case binary_double <<<2x11, 128>>>(in f64 unit 256, in f64 wide 256, out f64 2816, u32 256)
// case binary_double@special <<<2x11, 128>>>(in f64 special 256, in f64 unit 256, out f64 2816, u32 256)
extern "C" __global__ void binary_double(const double* a, const double* b, double* out, u32 n) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, k = blockIdx.y, at = 0;
    double x = a[i], y = b[i];
    out += k * n + i;
#define CASE(f) if (k == at++) *out = f(x, y);
    BINARY(CASE)
#undef CASE
}

// Functions with integer arguments or results, and pairs of results.
// case mixed_double <<<2, 64>>>(in f64 wide 128, out f64 1280, out i64 512)
extern "C" __global__ void mixed_double(const double* in, double* out, long long* integers) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    double x = in[i], whole, sine, cosine;
    int exponent, quotient;
    out[i] = frexp(x, &exponent);
    out[n + i] = ldexp(x, (int)i - 64);
    out[2 * n + i] = modf(x, &whole);
    out[3 * n + i] = whole;
    sincos(x, &sine, &cosine);
    out[4 * n + i] = sine + 2 * cosine;
    sincospi(x, &sine, &cosine);
    out[5 * n + i] = sine - cosine;
    out[6 * n + i] = remquo(x, 1.75, &quotient);
    out[7 * n + i] = scalbn(x, 3) + pow(x, (int)(i % 9) - 4);
    out[8 * n + i] = norm3d(x, 0.5, -2.0) + rnorm4d(x, 1.0, 2.0, 3.0);
    out[9 * n + i] = jn(2, x) + yn(3, fabs(x));
    integers[i] = exponent + 1000LL * (quotient & 7) + 100000LL * ilogb(x);
    integers[n + i] = llrint(x);
    integers[2 * n + i] = llround(x);
    integers[3 * n + i] = isnan(x) | isinf(x) << 1 | (signbit(x) != 0) << 2 | (isfinite(x) != 0) << 3;
}

// The four roundings of add, sub, mul, div, fma, sqrt and rcp.
// case rounded_double <<<4, 64>>>(in f64 wide 256, in f64 special 256, out f64 7168)
extern "C" __global__ void rounded_double(const double* a, const double* b, double* out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    double x = a[i], y = b[i], z = a[n - 1 - i];
    out += i;
#define ROUND(r) \
    *out = __dadd_##r(x, y), out += n, *out = __dsub_##r(x, y), out += n, *out = __dmul_##r(x, y), out += n, \
    *out = __ddiv_##r(x, y), out += n, *out = __fma_##r(x, y, z), out += n, *out = __dsqrt_##r(fabs(y)), out += n, \
    *out = __drcp_##r(x), out += n;
    ROUND(rn) ROUND(rz) ROUND(ru) ROUND(rd)
}

// Iterations whose result IEEE determines: Newton, Horner, continued fractions.
// case iterations_double <<<2, 64>>>(in f64 pos 128, out f64 384)
extern "C" __global__ void iterations_double(const double* in, double* out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    double x = in[i], root = 1;
    for (int k = 0; k < 8; k++) root = __dmul_rn(0.5, __dadd_rn(root, __ddiv_rn(x, root)));
    double sum = 0;
    for (int k = 20; k; k--) sum = __fma_rn(sum, x, __ddiv_rn(1.0, (double)k));
    double fraction = 1;
    for (int k = 30; k; k--) fraction = __dadd_rn((double)(2 * k - 1), __ddiv_rn(__dmul_rn(x, x), fraction));
    out[i] = root, out[128 + i] = sum, out[256 + i] = __ddiv_rn(x, fraction);
}
