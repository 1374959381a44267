// Cooperation of lanes.
// compile nvrtc12.9-sm_80 nvrtc13.0-sm_90 clang22-sm_80 nvcc13.0-sm_90-lineinfo nvrtc12.4-sm_80-G nvrtc13.0-sm_120
typedef unsigned u32;
typedef unsigned long long u64;

// Every mode and width, several types.
// case shuffles <<<1, 64>>>(in u32 bits 64, out u32 1600, out u64 256)
extern "C" __global__ void shuffles(const u32* in, u32* out, u64* wide) {
    u32 t = threadIdx.x, x = in[t];
    out += t;
#define PUT(v) *out = (v), out += 64;
    for (int width = 32; width >= 2; width /= 2) {
        PUT(__shfl_sync(~0u, x, t * 7 + 3, width)) PUT(__shfl_up_sync(~0u, x, width / 2 + 1, width))
        PUT(__shfl_down_sync(~0u, x, t % 5, width)) PUT(__shfl_xor_sync(~0u, x, width - 1 ^ 2, width))
    }
    PUT(__float_as_uint(__shfl_sync(~0u, __uint_as_float(x), -1))) PUT(__shfl_up_sync(~0u, x, 0)) PUT(__shfl_down_sync(~0u, x, 40))
    PUT((u32)__shfl_xor_sync(~0u, (int)x, 31))
    // Half a warp each, with the same instruction and different masks.
    PUT(__shfl_sync(t % 32 < 16 ? 0xFFFFu : 0xFFFF0000u, x, t ^ 5))
    u64 y = (u64)x << 32 | t;
    wide[t] = __shfl_xor_sync(~0u, y, 9), wide[64 + t] = __shfl_up_sync(~0u, y, 4, 16);
    wide[128 + t] = (u64)__double_as_longlong(__shfl_down_sync(~0u, (double)x, 3)), wide[192 + t] = (u64)__shfl_sync(~0u, (long long)y, 17);
}

// case votes <<<2, 64>>>(in u32 below:6 128, out u32 1280) ref votes
extern "C" __global__ void votes(const u32* in, u32* out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x, x = in[i];
    out += i;
#undef PUT
#define PUT(v) *out = (v), out += n;
    int same;
    PUT(__all_sync(~0u, x < 5)) PUT(__any_sync(~0u, x == 5)) PUT(__ballot_sync(~0u, x & 1)) PUT(__match_any_sync(~0u, x))
    PUT(__match_all_sync(~0u, x, &same)) PUT(same) PUT(__match_all_sync(~0u, x < 9, &same)) PUT(same)
    PUT(__match_any_sync(~0u, (u64)x << 40)) PUT(__popc(__activemask()))
}

// case reductions <<<2, 64>>>(in u32 bits 128, out u32 1024) ref reductions
extern "C" __global__ void reductions(const u32* in, u32* out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x, x = in[i];
    out += i;
    PUT(__reduce_add_sync(~0u, x)) PUT(__reduce_min_sync(~0u, x)) PUT(__reduce_max_sync(~0u, x)) PUT(__reduce_and_sync(~0u, x | 0xFF))
    PUT(__reduce_or_sync(~0u, x & 0xFF)) PUT(__reduce_xor_sync(~0u, x)) PUT((u32)__reduce_min_sync(~0u, (int)x)) PUT((u32)__reduce_max_sync(~0u, (int)x))
}

// Loops of different lengths, breaks, and collectives in branches with the mask of the participants.
// case divergence <<<2, 64>>>(in u32 below:50 128, out u32 384)
extern "C" __global__ void divergence(const u32* in, u32* out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, x = in[i], lane = threadIdx.x % 32, steps = 0;
    for (u32 n = x + 1; n != 1; steps++) {
        n = n & 1 ? 3 * n + 1 : n / 2;
        if (steps > 60) break;
    }
    u32 odd = __ballot_sync(~0u, x & 1), sum = 0;
    if (x & 1) {
        for (u32 step = 16; step; step /= 2) {
            u32 other = __shfl_xor_sync(odd, x, step);
            if (odd >> (lane ^ step) & 1) sum += other;
        }
    } else {
        sum = 1000 + __popc(__match_any_sync(~odd, x));
    }
    __syncwarp();
    u32 nested = 0;
    switch (x % 7) {
    case 0: nested = x * 3; break;
    case 1: nested = x ^ 0x55; // falls through
    case 2: nested += 2;
        if (x > 20) break;
        nested *= 5; // falls through
    case 3: nested -= lane; break;
    case 5:
        for (u32 k = 0; k < x; k++) {
            if (k == lane) goto out_of_it;
            nested += k;
        }
    out_of_it: nested |= 1; break;
    default: nested = ~x;
    }
    out[i] = steps, out[128 + i] = sum, out[256 + i] = nested;
}

// A warp's queue: lanes exit one after the other, and the rest continue together.
// case leaving <<<1, 32>>>(in u32 below:20 32, out u32 32, out u32 20)
extern "C" __global__ void leaving(const u32* in, u32* rounds, u32* present) {
    u32 lane = threadIdx.x, mine = in[lane], mask = ~0u;
    for (u32 round = 0; round < 20; round++) {
        u32 staying = __ballot_sync(mask, mine > round);
        if (lane == __ffs(mask) - 1) present[round] = mask;
        if (mine <= round) {
            rounds[lane] = round;
            return;
        }
        mask = staying;
    }
}

// Transposes 32 x 32 bits by shuffles.
// case bit_transpose <<<2, 32>>>(inout u32 bits 64) ref bit_transpose
extern "C" __global__ void bit_transpose(u32* rows) {
    u32 x = rows[blockIdx.x * 32 + threadIdx.x], mask = 0x0000FFFFu;
    for (u32 step = 16; step; step /= 2, mask ^= mask << step) {
        u32 other = __shfl_xor_sync(~0u, x, step);
        x = threadIdx.x & step ? (x & ~mask) | (other >> step & mask) : (x & mask) | (other << step & ~mask);
    }
    rows[blockIdx.x * 32 + threadIdx.x] = x;
}
