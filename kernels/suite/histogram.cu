// Histograms.
// compile nvrtc12.9-sm_80-fast nvrtc13.0-sm_90 clang19-sm_75 nvcc13.0-sm_80-G nvrtc13.0-sm_120
typedef unsigned u32;
typedef unsigned short u16;

// case histogram_shared <<<6, 128>>>(in u8 bits 10000, inout u32 zero 256, u32 10000) ref histogram
extern "C" __global__ void histogram_shared(const unsigned char* in, u32* counts, u32 n) {
    __shared__ u32 local[256];
    for (u32 i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
    __syncthreads();
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[in[i]], 1);
    __syncthreads();
    for (u32 i = threadIdx.x; i < 256; i += blockDim.x)
        if (local[i]) atomicAdd(&counts[i], local[i]);
}

// case histogram_global <<<5, 256>>>(in u8 bits 5000, inout u32 zero 256, u32 5000) ref histogram
extern "C" __global__ void histogram_global(const unsigned char* in, u32* counts, u32 n) {
    u32 i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (i + 4 <= n) {
        uchar4 v = *(const uchar4*)(in + i);
        atomicAdd(&counts[v.x], 1), atomicAdd(&counts[v.y], 1), atomicAdd(&counts[v.z], 1), atomicAdd(&counts[v.w], 1);
    } else
        for (; i < n; i++) atomicAdd(&counts[in[i]], 1);
}

// Lanes with the same bin elect one lane that adds for all.
// case histogram_matched <<<4, 64>>>(in u8 below:9 3000, inout u32 zero 256, u32 3000) ref histogram
extern "C" __global__ void histogram_matched(const unsigned char* in, u32* counts, u32 n) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        u32 bin = in[i], same = __match_any_sync(__activemask(), bin);
        if (threadIdx.x % 32 == __ffs(same) - 1) atomicAdd(&counts[bin], __popc(same));
    }
}

// Each thread counts nibbles in its own bytes, packed in four words, and adds them before they overflow.
// case histogram_packed <<<2, 32>>>(in u32 bits 4096, out u32 32, u32 2048) ref nibbles
extern "C" __global__ void histogram_packed(const u32* in, u32* counts, u32 n) {
    u32 wide[16] = {};
    const u32* mine = in + blockIdx.x * n;
    for (u32 from = threadIdx.x; from < n; from += 32 * 31) {
        u32 packed[4] = {};
        for (u32 i = from; i < n && i < from + 32 * 31; i += 32)
            for (u32 x = mine[i], k = 0; k < 8; k++, x >>= 4) packed[x >> 2 & 3] += 1u << (x & 3) * 8;
        for (u32 bin = 0; bin < 16; bin++) wide[bin] += packed[bin / 4] >> bin % 4 * 8 & 255;
    }
    for (u32 bin = 0; bin < 16; bin++) {
        for (u32 step = 16; step; step /= 2) wide[bin] += __shfl_xor_sync(~0u, wide[bin], step);
        if (threadIdx.x == bin) counts[blockIdx.x * 16 + bin] = wide[bin];
    }
}

// Two dimensions, 16-bit counters in dynamic shared memory.
// case histogram_pairs <<<2, 128, 2048>>>(in f32 unit 3000, in f32 unit 3000, inout u32 zero 1024, u32 3000)
extern "C" __global__ void histogram_pairs(const float* x, const float* y, u32* counts, u32 n) {
    extern __shared__ u16 cells[];
    for (u32 i = threadIdx.x; i < 1024; i += blockDim.x) cells[i] = 0;
    __syncthreads();
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        int cx = __float2int_rd((x[i] + 1) * 16), cy = __float2int_rd((y[i] + 1) * 16);
        u32 cell = (min(max(cy, 0), 31) * 32 + min(max(cx, 0), 31));
        atomicAdd((u32*)cells + cell / 2, cell & 1 ? 0x10000u : 1u);
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < 1024; i += blockDim.x) atomicAdd(&counts[i], (u32)cells[i]);
}
