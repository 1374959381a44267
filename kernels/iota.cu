// Kernels for stateless submits: the pointer of the region comes first, then the number of its values. Any 1-D launch of
// at least n threads.

// x[i] = i + 1
extern "C" __global__ void iota(float *x, unsigned int n)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        x[i] = (float)(i + 1);
    }
}

// x[i] = x[i] * x[i]
extern "C" __global__ void square(float *x, unsigned int n)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        x[i] = x[i] * x[i];
    }
}
