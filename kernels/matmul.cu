// c[m x n] = a[m x k] * b[k x n], all row-major, any sizes. Blocks of 16 x 16 threads, a grid of
// (ceil(n / 16), ceil(m / 16)).

constexpr unsigned int TILE = 16;

// Each block computes one tile of c and steps through k by tiles. A value loaded from global memory is used
// 16 times from shared memory. Terms are added in order of k, each with one rounding, so the result has the
// same bits as the plain triple loop with fmaf.
extern "C" __global__ void matmul(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c,
                                  unsigned int m, unsigned int n, unsigned int k)
{
    __shared__ float tile_a[TILE][TILE];
    __shared__ float tile_b[TILE][TILE];
    unsigned int tx = threadIdx.x;
    unsigned int ty = threadIdx.y;
    unsigned int row = blockIdx.y * TILE + ty;
    unsigned int column = blockIdx.x * TILE + tx;

    float sum = 0.0f;
    for (unsigned int start = 0; start < k; start += TILE) {
        // Past an edge the tiles contain zeros, which do not change a sum. Threads whose element is outside c
        // still load and still arrive at the barriers.
        unsigned int a_column = start + tx;
        unsigned int b_row = start + ty;
        tile_a[ty][tx] = row < m && a_column < k ? a[(size_t)row * k + a_column] : 0.0f;
        tile_b[ty][tx] = b_row < k && column < n ? b[(size_t)b_row * n + column] : 0.0f;
        __syncthreads();
        for (unsigned int i = 0; i < TILE; i++) {
            sum = fmaf(tile_a[ty][i], tile_b[i][tx], sum);
        }
        __syncthreads();
    }
    if (row < m && column < n) {
        c[(size_t)row * n + column] = sum;
    }
}

// The same product without shared memory, for comparison. Any 2-D launch that covers (n, m).
extern "C" __global__ void matmul_naive(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c,
                                        unsigned int m, unsigned int n, unsigned int k)
{
    unsigned int column = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || column >= n) {
        return;
    }
    float sum = 0.0f;
    for (unsigned int i = 0; i < k; i++) {
        sum = fmaf(a[(size_t)row * k + i], b[(size_t)i * n + column], sum);
    }
    c[(size_t)row * n + column] = sum;
}
