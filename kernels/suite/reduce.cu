// Reductions: blocks, warps, last block, atomics.
// compile nvrtc12.4-sm_75 nvrtc12.9-sm_90-fast nvrtc13.0-sm_90 clang22-sm_80 nvcc13.0-sm_90 nvrtc13.0-sm_120
typedef unsigned u32;
typedef unsigned long long u64;

// case block_sum <<<7, 128>>>(in f64 unit 5000, out f64 7, u32 5000)
extern "C" __global__ void block_sum(const double* in, double* out, u32 n) {
    __shared__ double part[128];
    double sum = 0;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    part[threadIdx.x] = sum;
    for (u32 half = blockDim.x / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}

__device__ u32 arrived;

// The block that arrives last adds the results of the others, in order.
// case last_block_sum <<<12, 64>>>(in f32 unit 3000, scratch f32 12, out f32 1, u32 3000)
extern "C" __global__ void last_block_sum(const float* in, volatile float* parts, float* out, u32 n) {
    __shared__ float part[2];
    __shared__ bool last;
    float sum = 0;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    for (u32 step = 16; step; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = part[0] + part[1];
        __threadfence();
        last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last || threadIdx.x) return;
    float total = 0;
    for (u32 b = 0; b < gridDim.x; b++) total += parts[b];
    *out = total;
}

// Value and index of the largest element, the first of equal ones: packed into 64 bits for one atomic.
// case argmax <<<5, 96>>>(in i32 below:500 4000, inout u64 zero 1, u32 4000) ref argmax
extern "C" __global__ void argmax(const int* in, u64* best, u32 n) {
    u64 mine = 0;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        u64 packed = (u64)((u32)in[i] ^ 0x80000000u) << 32 | (u32)~i;
        mine = packed > mine ? packed : mine;
    }
    for (u32 step = 16; step; step /= 2) {
        u64 other = __shfl_xor_sync(~0u, mine, step);
        mine = other > mine ? other : mine;
    }
    if (threadIdx.x % 32 == 0) atomicMax(best, mine);
}

// Largest and smallest float by compare-and-swap and by the order of integers.
// case extremes <<<4, 128>>>(in f32 wide 2500, inout f32 zero 2, u32 2500) ref extremes
extern "C" __global__ void extremes(const float* in, float* out, u32 n) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float x = in[i];
        u32 old = __float_as_uint(out[0]);
        while (__uint_as_float(old) < x) {
            u32 seen = atomicCAS((u32*)out, old, __float_as_uint(x));
            if (seen == old) break;
            old = seen;
        }
        if (x >= 0) atomicMin((int*)out + 1, __float_as_int(x));
        else atomicMax((u32*)out + 1, __float_as_uint(x));
    }
}

// Mean and variance by merging (count, mean, sum of squares) triples.
struct Moments {
    float count, mean, m2;
};

__device__ Moments merge(Moments a, Moments b) {
    float count = a.count + b.count;
    if (count == 0) return a;
    float delta = b.mean - a.mean, share = __fdiv_rn(b.count, count);
    return {count, __fmaf_rn(delta, share, a.mean), a.m2 + __fmaf_rn(__fmul_rn(delta, delta), __fmul_rn(a.count, share), b.m2)};
}

// case moments <<<6, 64>>>(in f32 unit 6000, out f32 18, u32 1000)
extern "C" __global__ void moments(const float* in, Moments* out, u32 n) {
    __shared__ Moments parts[2];
    Moments mine = {0, 0, 0};
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) mine = merge(mine, Moments{1, in[blockIdx.x * n + i], 0});
    for (u32 step = 1; step < 32; step *= 2) {
        Moments other = {__shfl_down_sync(~0u, mine.count, step), __shfl_down_sync(~0u, mine.mean, step),
                         __shfl_down_sync(~0u, mine.m2, step)};
        mine = merge(mine, other);
    }
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = merge(parts[0], parts[1]);
}

// Neumaier's compensated sum, one row per thread. Any reassociation changes the result.
// case compensated <<<1, 64>>>(in f32 wide 8192, out f32 64, u32 128)
extern "C" __global__ void compensated(const float* in, float* out, u32 n) {
    float sum = 0, lost = 0;
    for (u32 i = 0; i < n; i++) {
        float x = in[threadIdx.x * n + i], t = __fadd_rn(sum, x);
        float big = fabsf(sum) >= fabsf(x) ? sum : x, small = fabsf(sum) >= fabsf(x) ? x : sum;
        lost = __fadd_rn(lost, __fadd_rn(__fsub_rn(big, t), small));
        sum = t;
    }
    out[threadIdx.x] = __fadd_rn(sum, lost);
}
