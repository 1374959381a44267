// Random numbers and their uses.
// compile nvrtc12.4-sm_80 nvrtc13.0-sm_90 clang19-sm_75 nvcc13.0-sm_90-fast nvrtc13.0-sm_120
typedef unsigned u32;
typedef unsigned long long u64;

// Philox 4x32 with ten rounds.
// case philox <<<3, 64>>>(out u32 768, u64 0x123456789abcdef) ref philox
extern "C" __global__ void philox(uint4* out, u64 seed) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    u32 c0 = i, c1 = 0, c2 = 0, c3 = 0, k0 = (u32)seed, k1 = (u32)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        u32 high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
        u32 high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
        c0 = high1 ^ c1 ^ k0, c1 = low1, c2 = high0 ^ c3 ^ k1, c3 = low0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    out[i] = make_uint4(c0, c1, c2, c3);
}

struct Xorwow {
    u32 v[5], d;
};

// The state is in global memory, as in a library.
// case xorwow <<<2, 64>>>(inout u32 bits 768, out u32 128, u32 20) ref xorwow
extern "C" __global__ void xorwow(Xorwow* states, u32* sums, u32 steps) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, sum = 0;
    Xorwow s = states[i];
    for (u32 k = 0; k < steps; k++) {
        u32 t = s.v[0] ^ s.v[0] >> 2;
        s.v[0] = s.v[1], s.v[1] = s.v[2], s.v[2] = s.v[3], s.v[3] = s.v[4];
        s.v[4] ^= s.v[4] << 4 ^ t ^ t << 1;
        s.d += 362437;
        sum += s.v[4] + s.d;
    }
    states[i] = s;
    sums[i] = sum;
}

// PCG-XSH-RR with 64 bits of state, with jumps by squaring. 128 bits of state would require a library.
// case pcg <<<2, 128>>>(out u32 1024, u64 42) ref pcg
extern "C" __global__ void pcg(u32* out, u64 seed) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    u64 multiplier = 6364136223846793005ull, increment = 1442695040888963407ull;
    u64 m = multiplier, c = increment, total_m = 1, total_c = 0;
    for (u32 jump = i * 4; jump; jump >>= 1) {
        if (jump & 1) total_m *= m, total_c = total_c * m + c;
        c *= m + 1, m *= m;
    }
    u64 state = total_m * seed + total_c;
    for (u32 k = 0; k < 4; k++) {
        u32 mixed = (u32)((state >> 18 ^ state) >> 27), turn = (u32)(state >> 59);
        out[i * 4 + k] = __funnelshift_r(mixed, mixed, turn);
        state = state * multiplier + increment;
    }
}

// A multiplicative generator with 128 bits of state.
// case lehmer <<<1, 96>>>(in u64 bits 192, out u64 96, u32 40)
extern "C" __global__ void lehmer(const u64* seeds, u64* out, u32 steps) {
    u32 i = threadIdx.x;
    unsigned __int128 state = (unsigned __int128)seeds[2 * i] << 64 | seeds[2 * i + 1] | 1;
    const unsigned __int128 multiplier = (unsigned __int128)0x12E15E35B500F16Eull << 64 | 0x2E714EB2B37916A5ull;
    for (u32 k = 0; k < steps; k++) state *= multiplier;
    out[i] = (u64)(state >> 64);
}

__device__ u32 hash(u32 x) {
    x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu;
    return x ^ x >> 16;
}

// Points in the quarter circle, in integers, so the result is exact.
// case monte_carlo_pi <<<4, 64>>>(inout u64 zero 1, u32 50)
extern "C" __global__ void monte_carlo_pi(u64* inside, u32 points) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, count = 0;
    for (u32 k = 0; k < points; k++) {
        u64 x = hash(2 * (i * points + k)) >> 1, y = hash(2 * (i * points + k) + 1) >> 1;
        count += x * x + y * y < 1ull << 62;
    }
    for (u32 step = 16; step; step /= 2) count += __shfl_xor_sync(~0u, count, step);
    if (threadIdx.x % 32 == 0) atomicAdd(inside, (u64)count);
}

// Normal numbers by Box-Muller.
// case box_muller <<<4, 64>>>(out f32 512)
extern "C" __global__ void box_muller(float2* out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    float u = (hash(i) >> 8) * 0x1p-24f + 0x1p-25f, v = (hash(i + 7919) >> 8) * 0x1p-24f;
    float radius = sqrtf(-2 * logf(u)), sine, cosine;
    sincospif(2 * v, &sine, &cosine);
    out[i] = make_float2(radius * cosine, radius * sine);
}

// The price of an option along random paths.
// The driver fuses products and sums that PTX leaves without a rounding; assembled by `ptxas -fmad=false`, every bit
// is the same on the H200.
// case monte_carlo_option <<<2, 64>>>(out f32 128, f32 100, f32 105, f32 0.03, f32 0.2, u32 16) ulp 64
extern "C" __global__ void monte_carlo_option(float* payoffs, float price, float strike, float rate, float volatility, u32 steps) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    float dt = 1.0f / steps, drift = (rate - 0.5f * volatility * volatility) * dt, spread = volatility * sqrtf(dt), x = 0;
    for (u32 k = 0; k < steps; k++) {
        u32 h = hash(i * steps + k);
        float u = ((h & 0xFFFF) + 0.5f) / 65536, v = ((h >> 16) + 0.5f) / 65536;
        x += drift + spread * sqrtf(-2 * logf(u)) * cosf(6.2831853f * v);
    }
    payoffs[i] = expf(-rate) * fmaxf(price * expf(x) - strike, 0);
}

// Closed form: call and put.
// The driver fuses products and sums that PTX leaves without a rounding; assembled by `ptxas -fmad=false`, every bit
// is the same on the H200.
// case black_scholes <<<2, 128>>>(in f32 pos 256, in f32 pos 256, out f32 256, out f32 256, f32 0.02, f32 0.3) ulp 16 abs 1e-6
extern "C" __global__ void black_scholes(const float* prices, const float* strikes, float* calls, float* puts, float rate, float volatility) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    float s = 5 + 25 * prices[i], k = 1 + 99 * strikes[i], years = 0.25f + (i & 7);
    float root = sqrtf(years), d1 = (logf(s / k) + (rate + 0.5f * volatility * volatility) * years) / (volatility * root);
    float d2 = d1 - volatility * root, n1 = normcdff(d1), n2 = 0.5f * erfcf(-d2 * 0.70710678f), later = k * expf(-rate * years);
    calls[i] = s * n1 - later * n2;
    puts[i] = later * (1 - n2) - s * (1 - n1);
}
