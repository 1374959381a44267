// One-line kernels over n elements, for tests and first examples. Any 1-D launch of at least n threads.

__device__ unsigned int global_index()
{
    return blockIdx.x * blockDim.x + threadIdx.x;
}

// x[i] = value
extern "C" __global__ void fill(float *x, float value, unsigned int n)
{
    unsigned int i = global_index();
    if (i < n) {
        x[i] = value;
    }
}

// x[i] = value
extern "C" __global__ void fill_u32(unsigned int *x, unsigned int value, unsigned int n)
{
    unsigned int i = global_index();
    if (i < n) {
        x[i] = value;
    }
}

// x[i] = start + i, wrapping
extern "C" __global__ void iota(unsigned int *x, unsigned int start, unsigned int n)
{
    unsigned int i = global_index();
    if (i < n) {
        x[i] = start + i;
    }
}

// x[i] *= a
extern "C" __global__ void scale(float *x, float a, unsigned int n)
{
    unsigned int i = global_index();
    if (i < n) {
        x[i] *= a;
    }
}

// x[i] += a
extern "C" __global__ void add_scalar(float *x, float a, unsigned int n)
{
    unsigned int i = global_index();
    if (i < n) {
        x[i] += a;
    }
}

// x[i] += a, wrapping. A chain of launches then has an exact result that counts the launches.
extern "C" __global__ void add_scalar_u32(unsigned int *x, unsigned int a, unsigned int n)
{
    unsigned int i = global_index();
    if (i < n) {
        x[i] += a;
    }
}

// Does nothing. Measures the cost of a launch.
extern "C" __global__ void empty()
{
}
