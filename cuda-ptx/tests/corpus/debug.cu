// Compiled with line information: .file, .loc with inlined_at, .section.
__device__ __forceinline__ float inlined(float x) { return x * x + 1.0f; }
extern "C" __global__ void lines(float *x, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float y = inlined(x[i]);
        x[i] = y > 2.0f ? inlined(y) : y;
    }
}
