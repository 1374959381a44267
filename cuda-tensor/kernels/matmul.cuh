// c[i][j] = activation((sum of a[i][k] * b[k][j] over k) + bias[j]). The sum uses fused multiply-adds in ascending order.
//
// A block of 16 x 16 threads computes a tile of 64 x 64 elements of c, and each thread 4 x 4 of them. The tiles of a and b
// lie in shared memory. Strides are in elements, so transposed operands need no copy.

#define TILE 64
#define DEPTH 16
#define SIDE 16
#define PER_THREAD 4

struct Product {
    u64 batch, m, n, k;
    // The strides of the batch, the row and the column.
    u64 a[3], b[3];
    u64 activation;
};

template <typename T> __device__ inline T multiply_add(T a, T b, T c);
template <> __device__ inline float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
template <> __device__ inline double multiply_add(double a, double b, double c) { return fma(a, b, c); }

__device__ inline float hyperbolic_tangent(float x) { return tanhf(x); }
__device__ inline double hyperbolic_tangent(double x) { return tanh(x); }

// The functions of `Activation` in `tensor/operations/product`.
// Not inlined: a thread calls it for each of its elements.
__device__ __noinline__ Value activate(Value x, u64 activation)
{
    switch (activation) {
    case 1: return x < (Value)0 ? (Value)0 : x;
    // The approximation of GELU by tanh, with sqrt(2 / pi).
    case 2: {
        Value cube = x * x * x;
        Value inner = (Value)0.79788456080286535588 * (x + (Value)0.044715 * cube);
        return (Value)0.5 * x * ((Value)1 + hyperbolic_tangent(inner));
    }
    default: return x;
    }
}

template <bool HAS_BIAS>
__device__ inline void product(const Stored *a, const Stored *b, const Stored *bias, Stored *c, const Product &p)
{
    __shared__ Value of_a[DEPTH][TILE + 1];
    __shared__ Value of_b[DEPTH][TILE + 1];
    u64 columns = (p.n + TILE - 1) / TILE;
    u64 tiles = (p.m + TILE - 1) / TILE * columns;
    u32 x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
    for (u64 block = blockIdx.x; block < p.batch * tiles; block += gridDim.x) {
        u64 batch = block / tiles, tile = block % tiles;
        u64 row = tile / columns * TILE, column = tile % columns * TILE;
        const Stored *from_a = a + batch * p.a[0];
        const Stored *from_b = b + batch * p.b[0];
        Value sums[PER_THREAD][PER_THREAD] = {};
        for (u64 k = 0; k < p.k; k += DEPTH) {
            for (u32 i = threadIdx.x; i < TILE * DEPTH; i += SIDE * SIDE) {
                // Neighbouring threads read along the dimension whose stride is 1, if there is one.
                u32 depth = p.a[2] == 1 ? i % DEPTH : i / TILE, place = p.a[2] == 1 ? i / DEPTH : i % TILE;
                bool inside = row + place < p.m && k + depth < p.k;
                u64 at = (row + place) * p.a[1] + (k + depth) * p.a[2];
                of_a[depth][place] = inside ? widen(from_a[at]) : (Value)0;
            }
            for (u32 i = threadIdx.x; i < TILE * DEPTH; i += SIDE * SIDE) {
                u32 depth = p.b[1] == 1 ? i % DEPTH : i / TILE, place = p.b[1] == 1 ? i / DEPTH : i % TILE;
                bool inside = column + place < p.n && k + depth < p.k;
                u64 at = (k + depth) * p.b[1] + (column + place) * p.b[2];
                of_b[depth][place] = inside ? widen(from_b[at]) : (Value)0;
            }
            __syncthreads();
            u32 depths = p.k - k < DEPTH ? (u32)(p.k - k) : DEPTH;
            for (u32 depth = 0; depth < depths; depth++) {
                Value left[PER_THREAD], right[PER_THREAD];
#pragma unroll
                for (int i = 0; i < PER_THREAD; i++) {
                    left[i] = of_a[depth][y + i * SIDE];
                    right[i] = of_b[depth][x + i * SIDE];
                }
#pragma unroll
                for (int i = 0; i < PER_THREAD; i++) {
#pragma unroll
                    for (int j = 0; j < PER_THREAD; j++) {
                        sums[i][j] = multiply_add(left[i], right[j], sums[i][j]);
                    }
                }
            }
            __syncthreads();
        }
        Stored *to = c + batch * p.m * p.n;
#pragma unroll
        for (int i = 0; i < PER_THREAD; i++) {
            u64 at_row = row + y + i * SIDE;
#pragma unroll
            for (int j = 0; j < PER_THREAD; j++) {
                u64 at_column = column + x + j * SIDE;
                if (at_row < p.m && at_column < p.n) {
                    Value sum = sums[i][j];
                    if (HAS_BIAS) {
                        sum = sum + widen(bias[at_column]);
                    }
                    to[at_row * p.n + at_column] = narrow(activate(sum, p.activation));
                }
            }
        }
    }
}

extern "C" __global__ void matmul(const Stored *a, const Stored *b, Stored *c, const Product p)
{
    product<false>(a, b, a, c, p);
}

extern "C" __global__ void matmul_bias(const Stored *a, const Stored *b, const Stored *bias, Stored *c, const Product p)
{
    product<true>(a, b, bias, c, p);
}
