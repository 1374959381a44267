// Kernels for loops on the device: the condition of the loop is a word that they write.

// Decrements x, and writes the new value to `go`: the loop ends at 0.
extern "C" __global__ void count_down(unsigned *go, unsigned *x) {
    *x -= 1;
    *go = *x;
}

// One step of Newton's method for the square roots of a[0..n]. Writes to `go` whether a root still changes.
extern "C" __global__ void root_step(unsigned *go, const float *a, float *x, unsigned n) {
    __shared__ unsigned changed;
    if (threadIdx.x == 0) changed = 0;
    __syncthreads();
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x) {
        float next = 0.5f * (x[i] + a[i] / x[i]);
        if (fabsf(next - x[i]) > 1e-6f * next) changed = 1;
        x[i] = next;
    }
    __syncthreads();
    if (threadIdx.x == 0) *go = changed;
}
