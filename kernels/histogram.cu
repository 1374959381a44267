// counts[v] += how often the byte v occurs in x. Any 1-D launch; the caller zeroes the 256 counts.

constexpr unsigned int BINS = 256;

// Each block first counts in shared memory, which replaces n contended global atomics by at most 256 per block.
// Integer addition commutes, so the counts are exact in any order.
extern "C" __global__ void histogram(const unsigned char *x, unsigned int *counts, unsigned int n)
{
    __shared__ unsigned int local[BINS];
    for (unsigned int bin = threadIdx.x; bin < BINS; bin += blockDim.x) {
        local[bin] = 0;
    }
    __syncthreads();
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        atomicAdd(&local[x[i]], 1u);
    }
    __syncthreads();
    for (unsigned int bin = threadIdx.x; bin < BINS; bin += blockDim.x) {
        if (local[bin] != 0) {
            atomicAdd(&counts[bin], local[bin]);
        }
    }
}
