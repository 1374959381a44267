#include "index.cuh"

// y = a x + y
extern "C" __global__ void axpy(const float *x, float *y, float a, unsigned int n)
{
    unsigned int i = global_index();
    if (i < n) {
        y[i] = SCALE * a * x[i] + y[i];
    }
}

// out = the bits of each element
__global__ void bits(const float *x, unsigned int *out, unsigned int n)
{
    unsigned int i = global_index();
    if (i < n) {
        out[i] = __float_as_uint(x[i]);
    }
}

// out = in
extern "C" __global__ void copy_bytes(const void *in, void *out, unsigned int bytes)
{
    unsigned int i = global_index();
    if (i < bytes) {
        static_cast<char *>(out)[i] = static_cast<const char *>(in)[i];
    }
}
