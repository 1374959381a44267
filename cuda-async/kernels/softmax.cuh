// y[r][c] = exp(x[r][c] - largest of row r) / sum of those over row r. A row of threads takes one row. y may be x.

__device__ inline float exponential(float x) { return expf(x); }
__device__ inline double exponential(double x) { return exp(x); }

__device__ inline Value largest_of(Value a, Value b) { return larger_of(a, b); }
__device__ inline Value sum_of(Value a, Value b) { return a + b; }

#define KEPT 32

// The elements of a thread, in packs of WIDTH neighbours.
template <int WIDTH> __device__ inline void softmax_in_packs(const Stored *x, Stored *y, u64 rows, u32 n)
{
    typedef Pack<Stored, WIDTH> P;
    __shared__ Value tile[WARPS];
    u64 row = (u64)blockIdx.x * blockDim.y + threadIdx.y;
    u32 packs = row < rows ? n / WIDTH : 0;
    const P *from = (const P *)(x + row * n);
    P *to = (P *)(y + row * n);
    Value kept[KEPT];
    Value largest = Traits<Value>::lowest();
#pragma unroll
    for (int i = 0; i < KEPT / WIDTH; i++) {
        u32 pack = i * blockDim.x + threadIdx.x;
        if (pack < packs) {
            P loaded = from[pack];
#pragma unroll
            for (int lane = 0; lane < WIDTH; lane++) {
                kept[i * WIDTH + lane] = widen(loaded.lanes[lane]);
            }
        } else {
#pragma unroll
            for (int lane = 0; lane < WIDTH; lane++) {
                kept[i * WIDTH + lane] = Traits<Value>::lowest();
            }
        }
    }
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        largest = larger_of(largest, kept[i]);
    }
    largest = fold_row(tile, largest, largest_of);
    Value sum = 0;
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        // The places behind the row give 0, unless the whole row is minus infinity.
        kept[i] = exponential(kept[i] - largest);
        sum += kept[i];
    }
    Value scale = (Value)1 / fold_row(tile, sum, sum_of);
#pragma unroll
    for (int i = 0; i < KEPT / WIDTH; i++) {
        u32 pack = i * blockDim.x + threadIdx.x;
        if (pack < packs) {
            P result;
#pragma unroll
            for (int lane = 0; lane < WIDTH; lane++) {
                result.lanes[lane] = narrow(kept[i * WIDTH + lane] * scale);
            }
            to[pack] = result;
        }
    }
}

// Rows of at most KEPT elements for each thread: the row stays in registers. Aligned rows of whole packs are read in packs;
// `width` is their size, or 1.
extern "C" __global__ void softmax(const Stored *x, Stored *y, u64 rows, u32 n, u32 width)
{
    if (width > 1 && aligned(x) && aligned(y)) {
        softmax_in_packs<LANES>(x, y, rows, n);
    } else {
        softmax_in_packs<1>(x, y, rows, n);
    }
}

// Longer rows are read twice. Each thread keeps the largest of its elements, and the sum of the exponentials below it.
extern "C" __global__ void softmax_long(const Stored *x, Stored *y, u64 rows, u64 n)
{
    __shared__ Value tile[WARPS];
    u64 row = (u64)blockIdx.x * blockDim.y + threadIdx.y;
    bool has_row = row < rows;
    const Stored *from = x + row * n;
    Stored *to = y + row * n;
    Value largest = Traits<Value>::lowest(), sum = 0;
    if (has_row) {
#pragma unroll 4
        for (u64 column = threadIdx.x; column < n; column += blockDim.x) {
            Value value = widen(from[column]);
            if (value > largest || is_nan(value)) {
                sum = largest == Traits<Value>::lowest() ? (Value)0 : sum * exponential(largest - value);
                largest = value;
            }
            sum += value == Traits<Value>::lowest() ? (Value)0 : exponential(value - largest);
        }
    }
    Value of_row = fold_row(tile, largest, largest_of);
    sum = largest == Traits<Value>::lowest() ? (Value)0 : sum * exponential(largest - of_row);
    Value scale = (Value)1 / fold_row(tile, sum, sum_of);
    if (has_row) {
#pragma unroll 4
        for (u64 column = threadIdx.x; column < n; column += blockDim.x) {
            to[column] = narrow(exponential(widen(from[column]) - of_row) * scale);
        }
    }
}
