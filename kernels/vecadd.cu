// out[i] = a[i] + b[i]. Any 1-D launch of at least n threads.
// No __restrict__: out may be a or b, so the same kernel adds in place.
extern "C" __global__ void vecadd(const float *a, const float *b, float *out, unsigned int n)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = a[i] + b[i];
    }
}
