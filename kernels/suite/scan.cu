// Prefix sums.
// compile nvrtc12.9-sm_75 nvrtc13.0-sm_90 nvcc13.0-sm_80 clang19-sm_90 nvrtc12.4-sm_80-G nvrtc13.0-sm_120
typedef unsigned u32;
typedef unsigned long long u64;

// Blelloch's scan, up the tree and down again: exclusive, 256 per block of 128 threads.
// case blelloch <<<5, 128>>>(in u32 below:1000 1280, out u32 1280) ref scan_256_exclusive
extern "C" __global__ void blelloch(const u32* in, u32* out) {
    __shared__ u32 tree[256];
    u32 t = threadIdx.x, at = blockIdx.x * 256;
    tree[2 * t] = in[at + 2 * t];
    tree[2 * t + 1] = in[at + 2 * t + 1];
    u32 offset = 1;
    for (u32 d = 128; d; d /= 2, offset *= 2) {
        __syncthreads();
        if (t < d) tree[offset * (2 * t + 2) - 1] += tree[offset * (2 * t + 1) - 1];
    }
    if (t == 0) tree[255] = 0;
    for (u32 d = 1; d <= 128; d *= 2) {
        offset /= 2;
        __syncthreads();
        if (t < d) {
            u32 left = tree[offset * (2 * t + 1) - 1];
            tree[offset * (2 * t + 1) - 1] = tree[offset * (2 * t + 2) - 1];
            tree[offset * (2 * t + 2) - 1] += left;
        }
    }
    __syncthreads();
    out[at + 2 * t] = tree[2 * t];
    out[at + 2 * t + 1] = tree[2 * t + 1];
}

__device__ u32 warp_inclusive(u32 x) {
    for (u32 step = 1; step < 32; step *= 2) {
        u32 before = __shfl_up_sync(~0u, x, step);
        if (threadIdx.x % 32 >= step) x += before;
    }
    return x;
}

// Inclusive, by warps and then over the warps' sums.
// case warp_scan <<<4, 256>>>(in u32 bits 1024, out u32 1024) ref scan_256_inclusive
extern "C" __global__ void warp_scan(const u32* in, u32* out) {
    __shared__ u32 sums[32];
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, warp = threadIdx.x / 32;
    u32 x = warp_inclusive(in[i]);
    if (threadIdx.x % 32 == 31) sums[warp] = x;
    __syncthreads();
    if (warp == 0) sums[threadIdx.x] = warp_inclusive(threadIdx.x < blockDim.x / 32 ? sums[threadIdx.x] : 0);
    __syncthreads();
    out[i] = x + (warp ? sums[warp - 1] : 0);
}

// A single pass: each block publishes its sum, then looks back until it finds a finished prefix. Blocks spin.
// case look_back <<<24, 128>>>(in u32 below:100 3072, out u32 3072, scratch u64 24, scratch u32 1) ref scan_all_inclusive
extern "C" __global__ void look_back(const u32* in, u32* out, volatile u64* states, u32* ticket) {
    __shared__ u32 block, before, sums[4];
    if (threadIdx.x == 0) block = atomicAdd(ticket, 1);
    __syncthreads();
    u32 i = block * blockDim.x + threadIdx.x, warp = threadIdx.x / 32;
    u32 x = warp_inclusive(in[i]);
    if (threadIdx.x % 32 == 31) sums[warp] = x;
    __syncthreads();
    for (u32 w = 0; w < warp; w++) x += sums[w];
    if (threadIdx.x == blockDim.x - 1) {
        // The upper half is 1 for the block's own sum, and 2 for the sum of all up to this block.
        states[block] = (u64)(block ? 1 : 2) << 32 | x;
        u32 sum = 0;
        for (int back = (int)block - 1; back >= 0;) {
            u64 state = states[back];
            if (state >> 32 == 0) continue;
            sum += (u32)state;
            if (state >> 32 == 2) break;
            back--;
        }
        if (block) states[block] = (u64)2 << 32 | (u32)(sum + x);
        before = sum;
    }
    __syncthreads();
    out[i] = x + before;
}

// Sums that restart at each flag.
// case segmented <<<3, 128>>>(in f32 below:10 384, in u8 below:5 384, out f32 384)
extern "C" __global__ void segmented(const float* in, const unsigned char* heads, float* out) {
    __shared__ float values[128];
    __shared__ bool flags[128];
    u32 t = threadIdx.x, i = blockIdx.x * 128 + t;
    values[t] = in[i];
    flags[t] = heads[i] == 0;
    for (u32 step = 1; step < 128; step *= 2) {
        __syncthreads();
        float value = values[t];
        bool flag = flags[t];
        if (t >= step && !flag) {
            value += values[t - step];
            flag = flags[t - step];
        }
        __syncthreads();
        values[t] = value;
        flags[t] = flag;
    }
    out[i] = values[t];
}

// Keeps the odd numbers in order: ballots count before each lane, one shared scan over the warps.
// case compact <<<1, 256>>>(in u32 bits 1000, out u32 1000, out u32 1, u32 1000) ref compact
extern "C" __global__ void compact(const u32* in, u32* out, u32* count, u32 n) {
    __shared__ u32 sums[8], base;
    if (threadIdx.x == 0) base = 0;
    for (u32 from = 0; from < n; from += blockDim.x) {
        __syncthreads();
        u32 i = from + threadIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        u32 x = i < n ? in[i] : 0;
        u32 ballot = __ballot_sync(~0u, x & 1);
        if (lane == 0) sums[warp] = __popc(ballot);
        __syncthreads();
        u32 at = base + __popc(ballot & ((1u << lane) - 1));
        for (u32 w = 0; w < warp; w++) at += sums[w];
        if (x & 1) out[at] = x;
        __syncthreads();
        if (threadIdx.x == 0)
            for (u32 w = 0; w < 8; w++) base += sums[w];
    }
    __syncthreads();
    if (threadIdx.x == 0) *count = base;
}
