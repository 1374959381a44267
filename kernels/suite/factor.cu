// Factorisations of small matrices, one per block.
// compile nvrtc12.9-sm_80 nvrtc13.0-sm_90 clang22-sm_90 nvcc13.0-sm_75-G nvrtc13.0-sm_120
typedef unsigned u32;

// a = L L^T in place, right-looking, one matrix of n x n per block. The input is made positive definite here: A A^T + n I.
// case cholesky <<<3, 32>>>(in f64 unit 768, out f64 768, u32 16)
extern "C" __global__ void cholesky(const double* in, double* out, u32 n) {
    __shared__ double a[16][17];
    const double* source = in + blockIdx.x * n * n;
    u32 t = threadIdx.x;
    for (u32 i = t; i < n * n; i += blockDim.x) {
        u32 r = i / n, c = i % n;
        double sum = r == c ? n : 0;
        for (u32 k = 0; k < n; k++) sum = fma(source[r * n + k], source[c * n + k], sum);
        a[r][c] = sum;
    }
    __syncthreads();
    for (u32 j = 0; j < n; j++) {
        if (t == 0) a[j][j] = sqrt(a[j][j]);
        __syncthreads();
        if (t > j && t < n) a[t][j] /= a[j][j];
        __syncthreads();
        for (u32 c = j + 1; c <= t && t < n; c++) a[t][c] = fma(-a[t][j], a[c][j], a[t][c]);
        __syncthreads();
    }
    for (u32 i = t; i < n * n; i += blockDim.x) out[blockIdx.x * n * n + i] = i / n >= i % n ? a[i / n][i % n] : 0;
}

// Partial pivoting; the pivot is found by a shuffle of (magnitude, row).
// case lu_pivot <<<4, 32>>>(inout f32 unit 4096, out u32 128, u32 32)
extern "C" __global__ void lu_pivot(float* matrices, u32* pivots, u32 n) {
    __shared__ float a[32][33];
    float* matrix = matrices + blockIdx.x * n * n;
    u32 t = threadIdx.x;
    for (u32 r = 0; r < n; r++) a[r][t] = matrix[r * n + t];
    __syncwarp();
    for (u32 k = 0; k < n; k++) {
        float best = t >= k ? fabsf(a[t][k]) : -1;
        u32 row = t;
        for (u32 step = 16; step; step /= 2) {
            float other = __shfl_xor_sync(~0u, best, step);
            u32 other_row = __shfl_xor_sync(~0u, row, step);
            if (other > best || (other == best && other_row < row)) best = other, row = other_row;
        }
        if (t == 0) pivots[blockIdx.x * n + k] = row;
        float swap = a[k][t];
        a[k][t] = a[row][t];
        __syncwarp();
        if (row != k) a[row][t] = swap;
        __syncwarp();
        if (t > k) a[t][k] = __fdiv_rn(a[t][k], a[k][k]);
        __syncwarp();
        for (u32 r = k + 1; r < n; r++)
            if (t > k) a[r][t] = fmaf(-a[r][k], a[k][t], a[r][t]);
        __syncwarp();
    }
    for (u32 r = 0; r < n; r++) matrix[r * n + t] = a[r][t];
}

// Givens rotations: R in the upper triangle, one thread per column.
// case qr_givens <<<2, 16>>>(inout f64 unit 512, u32 16)
extern "C" __global__ void qr_givens(double* matrices, u32 n) {
    __shared__ double a[16][16];
    double* matrix = matrices + blockIdx.x * n * n;
    u32 t = threadIdx.x;
    for (u32 r = 0; r < n; r++) a[r][t] = matrix[r * n + t];
    __syncthreads();
    for (u32 c = 0; c + 1 < n; c++)
        for (u32 r = n - 1; r > c; r--) {
            double x = a[r - 1][c], y = a[r][c];
            __syncthreads();
            double length = sqrt(fma(x, x, y * y));
            double cosine = length == 0 ? 1 : x / length, sine = length == 0 ? 0 : y / length;
            double u = a[r - 1][t], v = a[r][t];
            a[r - 1][t] = fma(cosine, u, sine * v);
            a[r][t] = fma(cosine, v, -(sine * u));
            __syncthreads();
        }
    for (u32 r = 0; r < n; r++) matrix[r * n + t] = a[r][t];
}

// Eigenvalues of a symmetric matrix by cyclic Jacobi rotations, a matrix of 6 x 6 per thread, in local memory.
// case jacobi_eigenvalues <<<2, 32>>>(in f64 unit 2304, out f64 384, u32 64)
extern "C" __global__ void jacobi_eigenvalues(const double* in, double* out, u32 count) {
    const int n = 6;
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    double a[n][n];
    for (int r = 0; r < n; r++)
        for (int c = 0; c < n; c++) a[r][c] = in[i * n * n + (r < c ? r * n + c : c * n + r)];
#pragma unroll 1
    for (int sweep = 0; sweep < 6; sweep++)
#pragma unroll 1
        for (int p = 0; p + 1 < n; p++)
#pragma unroll 1
            for (int q = p + 1; q < n; q++) {
                if (a[p][q] == 0) continue;
                double theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
                double t = 1 / (fabs(theta) + sqrt(fma(theta, theta, 1.0)));
                if (theta < 0) t = -t;
                double c = 1 / sqrt(fma(t, t, 1.0)), s = t * c;
                for (int k = 0; k < n; k++) {
                    double x = a[k][p], y = a[k][q];
                    a[k][p] = fma(c, x, -(s * y));
                    a[k][q] = fma(s, x, c * y);
                }
                for (int k = 0; k < n; k++) {
                    double x = a[p][k], y = a[q][k];
                    a[p][k] = fma(c, x, -(s * y));
                    a[q][k] = fma(s, x, c * y);
                }
            }
    for (int k = 0; k < n; k++) out[i * n + k] = a[k][k];
}

// A tridiagonal system by parallel cyclic reduction in shared memory.
// case tridiagonal <<<2, 128>>>(in f32 unit 256, in f32 unit 256, in f32 unit 256, out f32 256)
extern "C" __global__ void tridiagonal(const float* lower, const float* upper, const float* right, float* x) {
    __shared__ float a[128], b[128], c[128], d[128];
    u32 t = threadIdx.x, n = blockDim.x, at = blockIdx.x * n + t;
    a[t] = t == 0 ? 0 : lower[at];
    c[t] = t == n - 1 ? 0 : upper[at];
    b[t] = 4;
    d[t] = right[at];
    __syncthreads();
    for (u32 step = 1; step < n; step *= 2) {
        float na = 0, nb = b[t], nc = 0, nd = d[t];
        if (t >= step) {
            float k = __fdiv_rn(a[t], b[t - step]);
            na = __fmul_rn(-k, a[t - step]);
            nb = __fmaf_rn(-k, c[t - step], nb);
            nd = __fmaf_rn(-k, d[t - step], nd);
        }
        if (t + step < n) {
            float k = __fdiv_rn(c[t], b[t + step]);
            nc = __fmul_rn(-k, c[t + step]);
            nb = __fmaf_rn(-k, a[t + step], nb);
            nd = __fmaf_rn(-k, d[t + step], nd);
        }
        __syncthreads();
        a[t] = na, b[t] = nb, c[t] = nc, d[t] = nd;
        __syncthreads();
    }
    x[at] = __fdiv_rn(d[t], b[t]);
}
