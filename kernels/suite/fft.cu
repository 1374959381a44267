// Transforms in shared memory.
// compile nvrtc12.9-sm_90 nvrtc13.0-sm_90-fast clang19-sm_80 nvcc13.0-sm_75 nvrtc13.0-sm_120-fast
typedef unsigned u32;
typedef unsigned long long u64;

// Radix 2, 256 points per block; the twiddles by sincospif.
// The driver fuses products and sums that PTX leaves without a rounding; assembled by `ptxas -fmad=false`, every bit
// is the same on the H200.
// case fft_radix_2 <<<3, 128>>>(inout f32 unit 1536) ulp 32 abs 3e-6
extern "C" __global__ void fft_radix_2(float2* data) {
    __shared__ float2 s[256];
    u32 t = threadIdx.x;
    float2* x = data + blockIdx.x * 256;
    for (u32 i = t; i < 256; i += 128) s[__brev(i) >> 24] = x[i];
    for (u32 half = 1; half < 256; half *= 2) {
        __syncthreads();
        u32 k = t & (half - 1), i = 2 * t - k;
        float sine, cosine;
        sincospif(-(float)k / half, &sine, &cosine);
        float2 a = s[i], b = s[i + half];
        float2 c = {cosine * b.x - sine * b.y, cosine * b.y + sine * b.x};
        s[i] = {a.x + c.x, a.y + c.y};
        s[i + half] = {a.x - c.x, a.y - c.y};
    }
    __syncthreads();
    for (u32 i = t; i < 256; i += 128) x[i] = s[i];
}

__constant__ double2 turns[16] = {{1, 0}, {0.92387953251128674, -0.38268343236508978}, {0.70710678118654757, -0.70710678118654757},
    {0.38268343236508978, -0.92387953251128674}, {0, -1}, {-0.38268343236508978, -0.92387953251128674},
    {-0.70710678118654757, -0.70710678118654757}, {-0.92387953251128674, -0.38268343236508978}, {-1, 0},
    {-0.92387953251128674, 0.38268343236508978}, {-0.70710678118654757, 0.70710678118654757}, {-0.38268343236508978, 0.92387953251128674},
    {0, 1}, {0.38268343236508978, 0.92387953251128674}, {0.70710678118654757, 0.70710678118654757}, {0.92387953251128674, 0.38268343236508978}};

__device__ double2 times(double2 a, double2 b) { return {__fma_rn(a.x, b.x, -__dmul_rn(a.y, b.y)), __fma_rn(a.x, b.y, __dmul_rn(a.y, b.x))}; }
__device__ double2 plus(double2 a, double2 b) { return {__dadd_rn(a.x, b.x), __dadd_rn(a.y, b.y)}; }
__device__ double2 minus(double2 a, double2 b) { return {__dsub_rn(a.x, b.x), __dsub_rn(a.y, b.y)}; }

// Radix 4, 16 points per thread, in double precision, twiddles from constant memory: exact.
// case fft_radix_4 <<<2, 32>>>(inout f64 unit 2048)
extern "C" __global__ void fft_radix_4(double2* data) {
    double2* x = data + (blockIdx.x * blockDim.x + threadIdx.x) * 16;
    double2 a[16];
    for (int i = 0; i < 16; i++) a[i] = x[i];
#pragma unroll
    for (int stage = 0; stage < 2; stage++) {
        double2 b[16];
        const int stride = stage == 0 ? 4 : 1;
#pragma unroll
        for (int g = 0; g < 4; g++) {
            const int base = stage == 0 ? g : 4 * g;
            double2 p = a[base], q = a[base + stride], r = a[base + 2 * stride], s = a[base + 3 * stride];
            double2 u = plus(p, r), v = minus(p, r), w = plus(q, s), z = minus(q, s);
            double2 turned = {z.y, -z.x};
            double2 out[4] = {plus(u, w), plus(v, turned), minus(u, w), minus(v, turned)};
#pragma unroll
            for (int k = 0; k < 4; k++) b[base + k * stride] = stage == 0 ? times(out[k], turns[g * k]) : out[k];
        }
#pragma unroll
        for (int i = 0; i < 16; i++) a[i] = b[i];
    }
#pragma unroll
    for (int i = 0; i < 16; i++) x[i % 4 * 4 + i / 4] = a[i];
}

// Modulo the prime 2^64 - 2^32 + 1: exact integers, 128-bit products.
#define PRIME 0xFFFFFFFF00000001ull
__device__ u64 add_mod(u64 a, u64 b) {
    u64 sum = a + b;
    return sum < a || sum >= PRIME ? sum - PRIME : sum;
}
__device__ u64 sub_mod(u64 a, u64 b) { return a >= b ? a - b : a + (PRIME - b); }
__device__ u64 mul_mod(u64 a, u64 b) {
    u64 low = a * b, high = __umul64hi(a, b), top = high >> 32, middle = high & 0xFFFFFFFFu;
    u64 x = sub_mod(low >= PRIME ? low - PRIME : low, top);
    return add_mod(x, (middle << 32) - middle);
}
__device__ u64 power(u64 base, u64 exponent) {
    u64 result = 1;
    for (; exponent; exponent >>= 1, base = mul_mod(base, base))
        if (exponent & 1) result = mul_mod(result, base);
    return result;
}

// case number_transform <<<2, 64>>>(inout u64 below:1000000007 256) ref number_transform
extern "C" __global__ void number_transform(u64* data) {
    __shared__ u64 s[128];
    u32 t = threadIdx.x;
    u64* x = data + blockIdx.x * 128;
    for (u32 i = t; i < 128; i += 64) s[__brev(i) >> 25] = x[i];
    for (u32 half = 1; half < 128; half *= 2) {
        __syncthreads();
        u32 k = t & (half - 1), i = 2 * t - k;
        u64 root = power(7, (PRIME - 1) / (2 * half) * k);
        u64 a = s[i], b = mul_mod(s[i + half], root);
        s[i] = add_mod(a, b);
        s[i + half] = sub_mod(a, b);
    }
    __syncthreads();
    for (u32 i = t; i < 128; i += 64) x[i] = s[i];
}

// The 8 x 8 cosine transform of images, in 16-bit fixed point.
// case cosine_transform <<<4, 8x8>>>(in u8 bits 256, out i16 256)
__constant__ short cosines[8][8] = {{5793, 5793, 5793, 5793, 5793, 5793, 5793, 5793}, {8035, 6811, 4551, 1598, -1598, -4551, -6811, -8035},
    {7568, 3135, -3135, -7568, -7568, -3135, 3135, 7568}, {6811, -1598, -8035, -4551, 4551, 8035, 1598, -6811},
    {5793, -5793, -5793, 5793, 5793, -5793, -5793, 5793}, {4551, -8035, 1598, 6811, -6811, -1598, 8035, -4551},
    {3135, -7568, 7568, -3135, -3135, 7568, -7568, 3135}, {1598, -4551, 6811, -8035, 8035, -6811, 4551, -1598}};
extern "C" __global__ void cosine_transform(const unsigned char* in, short* out) {
    __shared__ int block[8][9];
    int x = threadIdx.x, y = threadIdx.y, at = blockIdx.x * 64 + y * 8 + x;
    block[y][x] = in[at] - 128;
    __syncthreads();
    int sum = 0;
    for (int k = 0; k < 8; k++) sum += cosines[x][k] * block[y][k];
    __syncthreads();
    block[y][x] = (sum + 1024) >> 11;
    __syncthreads();
    sum = 0;
    for (int k = 0; k < 8; k++) sum += cosines[y][k] * block[k][x];
    out[at] = (short)((sum + (1 << 16)) >> 17);
}

// The Walsh-Hadamard transform: within a warp by shuffles, across warps in shared memory.
// case walsh <<<2, 128>>>(inout f32 below:100 256)
extern "C" __global__ void walsh(float* data) {
    __shared__ float s[128];
    float x = data[blockIdx.x * 128 + threadIdx.x];
    for (u32 step = 1; step < 32; step *= 2) {
        float other = __shfl_xor_sync(~0u, x, step);
        x = threadIdx.x & step ? other - x : x + other;
    }
    for (u32 step = 32; step < 128; step *= 2) {
        __syncthreads();
        s[threadIdx.x] = x;
        __syncthreads();
        float other = s[threadIdx.x ^ step];
        x = threadIdx.x & step ? other - x : x + other;
    }
    data[blockIdx.x * 128 + threadIdx.x] = x;
}
