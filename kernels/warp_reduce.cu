// Reductions through warp shuffles. 1-D launches, block sizes a multiple of 32.

constexpr unsigned int WARP = 32;
constexpr unsigned int EVERYONE = 0xffffffffu;

__device__ float warp_sum(float value)
{
    for (unsigned int distance = WARP / 2; distance > 0; distance /= 2) {
        value += __shfl_down_sync(EVERYONE, value, distance);
    }
    return value; // complete in lane 0
}

// partials[block] = sum of the block's share of x. There are no float atomics, so the order of the additions, and
// every bit of the result, depend only on the launch shape.
extern "C" __global__ void warp_sum_f32(const float *x, float *partials, unsigned int n)
{
    __shared__ float warps[WARP]; // a block has at most 1024 threads, 32 warps
    unsigned int lane = threadIdx.x % WARP;
    unsigned int warp = threadIdx.x / WARP;

    float sum = 0.0f;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        sum += x[i];
    }
    sum = warp_sum(sum);
    if (lane == 0) {
        warps[warp] = sum;
    }
    __syncthreads();
    if (warp == 0) {
        sum = warp_sum(lane < blockDim.x / WARP ? warps[lane] : 0.0f);
        if (lane == 0) {
            partials[blockIdx.x] = sum;
        }
    }
}

// *total += sum of x, wrapping. One atomic per warp: the total of integers does not depend on the order.
// Needs at least n threads.
extern "C" __global__ void warp_sum_u32(const unsigned int *x, unsigned int *total, unsigned int n)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    // Past the end a lane adds 0 and does not return, because all 32 must execute the shuffles.
    unsigned int value = i < n ? x[i] : 0;
    for (unsigned int distance = WARP / 2; distance > 0; distance /= 2) {
        value += __shfl_down_sync(EVERYONE, value, distance);
    }
    if (threadIdx.x % WARP == 0) {
        atomicAdd(total, value);
    }
}

// *largest = max(*largest, x...). After the xor shuffles every lane has the warp's maximum. Needs at least n threads.
extern "C" __global__ void warp_max_i32(const int *x, int *largest, unsigned int n)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    int value = i < n ? x[i] : -2147483647 - 1;
    for (unsigned int mask = WARP / 2; mask > 0; mask /= 2) {
        value = max(value, __shfl_xor_sync(EVERYONE, value, mask));
    }
    if (threadIdx.x % WARP == 0) {
        atomicMax(largest, value);
    }
}

// *count += number of x[i] above limit: one vote per warp, whose bits are counted. Needs at least n threads.
extern "C" __global__ void count_above(const float *x, unsigned int *count, float limit, unsigned int n)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned int votes = __ballot_sync(EVERYONE, i < n && x[i] > limit);
    if (threadIdx.x % WARP == 0) {
        atomicAdd(count, __popc(votes));
    }
}
