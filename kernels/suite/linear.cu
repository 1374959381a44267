// Dense linear algebra: products and transposes.
// compile nvrtc12.4-sm_75 nvrtc12.9-sm_80 nvrtc13.0-sm_90 nvcc13.0-sm_90-fast clang19-sm_80 nvrtc13.0-sm_120
typedef unsigned u32;

// One warp per row. Lanes fold their sums by halves.
// case gemv_rows <<<8, 256>>>(in f32 unit 6144, in f32 unit 96, out f32 64, u32 64, u32 96) ref gemv
extern "C" __global__ void gemv_rows(const float* a, const float* x, float* y, u32 rows, u32 columns) {
    u32 row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float sum = 0;
    for (u32 c = lane; c < columns; c += 32) sum = fmaf(a[row * columns + c], x[c], sum);
    for (u32 step = 16; step; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
    if (lane == 0) y[row] = sum;
}

// case gemm_naive <<<4x3, 16x16>>>(in f32 unit 2400, in f32 unit 3200, out f32 3072, u32 48, u32 64, u32 50) ref gemm
extern "C" __global__ void gemm_naive(const float* a, const float* b, float* c, u32 m, u32 n, u32 k) {
    u32 column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    float sum = 0;
    for (u32 i = 0; i < k; i++) sum = fmaf(a[row * k + i], b[i * n + column], sum);
    c[row * n + column] = sum;
}

#define TILE 16
// case gemm_tiled <<<4x3, 16x16>>>(in f32 unit 2400, in f32 unit 3200, out f32 3072, u32 48, u32 64, u32 50) ref gemm
extern "C" __global__ void gemm_tiled(const float* a, const float* b, float* c, u32 m, u32 n, u32 k) {
    __shared__ float left[TILE][TILE], right[TILE][TILE + 1];
    u32 x = threadIdx.x, y = threadIdx.y, column = blockIdx.x * TILE + x, row = blockIdx.y * TILE + y;
    float sum = 0;
    for (u32 from = 0; from < k; from += TILE) {
        left[y][x] = row < m && from + x < k ? a[row * k + from + x] : 0;
        right[y][x] = column < n && from + y < k ? b[(from + y) * n + column] : 0;
        __syncthreads();
#pragma unroll
        for (u32 i = 0; i < TILE; i++) sum = fmaf(left[y][i], right[i][x], sum);
        __syncthreads();
    }
    if (row < m && column < n) c[row * n + column] = sum;
}

// 32 x 32 outputs per block of 64 threads: 4 x 4 in each thread's registers, loaded by four floats. The sizes
// are multiples of 32, 32 and 8.
// case gemm_registers <<<2x2, 64>>>(in f32 unit 4096, in f32 unit 4096, out f32 4096, u32 64, u32 64, u32 64) ref gemm
extern "C" __global__ void gemm_registers(const float* a, const float* b, float* c, u32 m, u32 n, u32 k) {
    __shared__ __align__(16) float left[8][32], right[8][32];
    u32 t = threadIdx.x, tx = t % 8 * 4, ty = t / 8 * 4;
    u32 row0 = blockIdx.y * 32, column0 = blockIdx.x * 32;
    float sum[4][4] = {};
    for (u32 from = 0; from < k; from += 8) {
        float4 av = *(const float4*)&a[(row0 + t / 2) * k + from + t % 2 * 4];
        left[t % 2 * 4 + 0][t / 2] = av.x;
        left[t % 2 * 4 + 1][t / 2] = av.y;
        left[t % 2 * 4 + 2][t / 2] = av.z;
        left[t % 2 * 4 + 3][t / 2] = av.w;
        *(float4*)&right[t / 8][t % 8 * 4] = *(const float4*)&b[(from + t / 8) * n + column0 + t % 8 * 4];
        __syncthreads();
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            float4 x = *(float4*)&left[i][ty], y = *(float4*)&right[i][tx];
            const float xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
            for (u32 r = 0; r < 4; r++)
#pragma unroll
                for (u32 s = 0; s < 4; s++) sum[r][s] = fmaf(xs[r], ys[s], sum[r][s]);
        }
        __syncthreads();
    }
    for (u32 r = 0; r < 4; r++)
        *(float4*)&c[(row0 + ty + r) * n + column0 + tx] = make_float4(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
}

// case transpose <<<3x2, 32x8>>>(in f64 wide 5400, out f64 5400, u32 60, u32 90) ref transpose
extern "C" __global__ void transpose(const double* in, double* out, u32 rows, u32 columns) {
    __shared__ double tile[32][33];
    for (u32 i = threadIdx.y; i < 32; i += blockDim.y) {
        u32 row = blockIdx.y * 32 + i, column = blockIdx.x * 32 + threadIdx.x;
        if (row < rows && column < columns) tile[i][threadIdx.x] = in[row * columns + column];
    }
    __syncthreads();
    for (u32 i = threadIdx.y; i < 32; i += blockDim.y) {
        u32 row = blockIdx.x * 32 + i, column = blockIdx.y * 32 + threadIdx.x;
        if (row < columns && column < rows) out[row * rows + column] = tile[threadIdx.x][i];
    }
}

// Many products of 4 x 4 matrices, one per thread, row-major by column-major.
struct Matrix4 {
    double v[4][4];
};

// case batched <<<4, 64>>>(in f64 unit 3200, in f64 unit 3200, out f64 3200, u32 200)
extern "C" __global__ void batched(const Matrix4* a, const Matrix4* b, Matrix4* c, u32 count) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    Matrix4 x = a[i], y = b[i], z;
    for (int r = 0; r < 4; r++)
        for (int s = 0; s < 4; s++) {
            double sum = 0;
            for (int j = 0; j < 4; j++) sum = fma(x.v[r][j], y.v[j][s], sum);
            z.v[r][s] = sum;
        }
    c[i] = z;
}

// y += alpha A^T x: each block sums some rows and adds them with atomics. The numbers are small integers, so the
// order of the additions does not matter.
// case gemv_transposed <<<4, 64>>>(in f32 below:64 4096, in f32 below:64 64, inout f32 below:8 64, f32 2, u32 64, u32 64) ref gemv_transposed
extern "C" __global__ void gemv_transposed(const float* a, const float* x, float* y, float alpha, u32 rows, u32 columns) {
    u32 t = threadIdx.x;
    float sum = 0;
    for (u32 r = blockIdx.x; r < rows; r += gridDim.x) sum += a[r * columns + t] * x[r];
    atomicAdd(&y[t], alpha * sum);
}
