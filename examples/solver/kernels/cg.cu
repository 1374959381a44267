// The steps of a conjugate gradient solver. Vectors have n elements, scalars are buffers of one element, so no step
// waits for the host. The order of additions depends only on the launch shape.

// out = A v, for the negative 5-point Laplacian A of a square of side by side points: 4 on the diagonal, -1 for each
// neighbour. Points outside the square are 0. Any 2-D launch that covers (side, side).
extern "C" __global__ void laplacian(const double *__restrict__ v, double *__restrict__ out, unsigned int side)
{
    unsigned int x = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= side || y >= side) {
        return;
    }
    size_t here = (size_t)y * side + x;
    double sum = 4.0 * v[here];
    if (y > 0) {
        sum -= v[here - side];
    }
    if (y + 1 < side) {
        sum -= v[here + side];
    }
    if (x > 0) {
        sum -= v[here - 1];
    }
    if (x + 1 < side) {
        sum -= v[here + 1];
    }
    out[here] = sum;
}

// out[0] = a . b. One block of 256 threads. out must be neither a nor b.
extern "C" __global__ void dot(const double *a, const double *b, double *out, unsigned int n)
{
    __shared__ double sums[256];
    unsigned int t = threadIdx.x;
    double sum = 0.0;
    for (size_t i = t; i < n; i += 256) {
        sum = fma(a[i], b[i], sum);
    }
    sums[t] = sum;
    __syncthreads();
    for (unsigned int half = 128; half > 0; half /= 2) {
        if (t < half) {
            sums[t] += sums[t + half];
        }
        __syncthreads();
    }
    if (t == 0) {
        out[0] = sums[0];
    }
}

// alpha = rr / pq; x += alpha p; r -= alpha q. Any 1-D launch of at least n threads. A solved system, with rr = 0,
// stays unchanged.
extern "C" __global__ void advance(const double *p, const double *q, const double *rr, const double *pq, double *x,
                                   double *r, unsigned int n)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && rr[0] > 0.0) {
        double alpha = rr[0] / pq[0];
        x[i] = fma(alpha, p[i], x[i]);
        r[i] = fma(-alpha, q[i], r[i]);
    }
}

// beta = next_rr / rr; p = r + beta p. Any 1-D launch of at least n threads.
extern "C" __global__ void turn(const double *r, const double *next_rr, const double *rr, double *p, unsigned int n)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && rr[0] > 0.0) {
        double beta = next_rr[0] / rr[0];
        p[i] = fma(beta, p[i], r[i]);
    }
}
