// y[r][c] = exp(x[r][c] - max of row r) / sum of those over the row, row-major. One block per row (a grid of at
// least `rows`), blocks of any size up to 1024. y may be x.

// Reduces the block's values into tile[0] and returns the result to all threads. There is a barrier between the
// read and the next use of tile.
template <typename Combine> __device__ float block_fold(float *tile, float value, Combine combine)
{
    unsigned int t = threadIdx.x;
    tile[t] = value;
    __syncthreads();
    for (unsigned int width = blockDim.x; width > 1;) {
        unsigned int half = (width + 1) / 2;
        if (t + half < width) {
            tile[t] = combine(tile[t], tile[t + half]);
        }
        __syncthreads();
        width = half;
    }
    float result = tile[0];
    __syncthreads();
    return result;
}

extern "C" __global__ void softmax(const float *x, float *y, unsigned int rows, unsigned int columns)
{
    __shared__ float tile[1024];
    // The whole block returns together, so no barrier below waits for a thread that has exited.
    if (blockIdx.x >= rows) {
        return;
    }
    size_t row = (size_t)blockIdx.x * columns;

    // The maximum is subtracted so that expf cannot overflow; it cancels in the quotient.
    float largest = -__int_as_float(0x7f800000);
    for (unsigned int c = threadIdx.x; c < columns; c += blockDim.x) {
        largest = fmaxf(largest, x[row + c]);
    }
    largest = block_fold(tile, largest, [](float p, float q) { return fmaxf(p, q); });

    // y holds the exponentials in between. Each thread reads only elements that it wrote itself.
    float sum = 0.0f;
    for (unsigned int c = threadIdx.x; c < columns; c += blockDim.x) {
        float e = expf(x[row + c] - largest);
        y[row + c] = e;
        sum += e;
    }
    sum = block_fold(tile, sum, [](float p, float q) { return p + q; });

    for (unsigned int c = threadIdx.x; c < columns; c += blockDim.x) {
        y[row + c] /= sum;
    }
}
