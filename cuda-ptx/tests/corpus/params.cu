// Parameters of every size and alignment, structures by value, templates, vector types.
struct Pair { char tag; double value; };
struct alignas(16) Big { float4 rows[3]; short tail; };

extern "C" __global__ void vecadd(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

extern "C" __global__ void mixed(unsigned char a, Pair b, short c, Big d, bool e, double *out) {
    out[threadIdx.x] = a + b.tag + b.value + c + d.rows[1].y + d.tail + e;
}

template <typename T, int N>
__global__ void scale(T *data, T factor) {
#pragma unroll
    for (int i = 0; i < N; i++) data[threadIdx.x + i * blockDim.x] *= factor;
}
template __global__ void scale<float, 4>(float *, float);
template __global__ void scale<long long, 2>(long long *, long long);

extern "C" __global__ void __launch_bounds__(256, 2) vectors(const float4 *in, int2 *out) {
    float4 v = in[threadIdx.x];
    out[threadIdx.x] = make_int2((int)(v.x * v.y), (int)(v.z / v.w));
}
