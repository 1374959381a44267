// y[i] = a * x[i] + y[i], rounded once. Any 1-D launch of at least n threads.
extern "C" __global__ void saxpy(const float *x, float *y, float a, unsigned int n)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = fmaf(a, x[i], y[i]);
    }
}

// The same in double precision.
extern "C" __global__ void daxpy(const double *x, double *y, double a, unsigned int n)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = fma(a, x[i], y[i]);
    }
}
