// Sums through shared memory. Each block writes one partial sum, in an order that depends only on the launch
// shape, so a result is reproducible bit for bit. A second launch of one block sums the partial sums.
// 1-D launches, blocks of any size, with blockDim.x elements of dynamic shared memory.

// One buffer for every type: extern shared arrays in one file all start at the same address.
extern __shared__ double shared_memory[];

template <typename T> __device__ void block_sum(const T *x, T *partials, unsigned int n)
{
    T *tile = (T *)shared_memory;
    unsigned int t = threadIdx.x;

    // size_t, because the index may exceed n by nearly a whole grid before the loop ends.
    T sum = 0;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + t; i < n; i += (size_t)gridDim.x * blockDim.x) {
        sum += x[i];
    }
    tile[t] = sum;
    __syncthreads();

    // Fold the upper half onto the lower half until one element is left. An odd width keeps its middle element.
    for (unsigned int width = blockDim.x; width > 1;) {
        unsigned int half = (width + 1) / 2;
        if (t + half < width) {
            tile[t] += tile[t + half];
        }
        __syncthreads();
        width = half;
    }
    if (t == 0) {
        partials[blockIdx.x] = tile[0];
    }
}

// partials[block] = sum of the block's share of x
extern "C" __global__ void block_sum_f32(const float *x, float *partials, unsigned int n)
{
    block_sum(x, partials, n);
}

extern "C" __global__ void block_sum_f64(const double *x, double *partials, unsigned int n)
{
    block_sum(x, partials, n);
}

extern "C" __global__ void block_sum_u32(const unsigned int *x, unsigned int *partials, unsigned int n)
{
    block_sum(x, partials, n);
}
