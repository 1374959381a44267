// y[r][c] = exp(x[r][c] - largest of row r) / sum of those over row r. A row of threads takes one row. y may be x.

__device__ inline float exponential(float x) { return expf(x); }
__device__ inline double exponential(double x) { return exp(x); }

// These ignore NaN, which comes back with its exponential.
__device__ inline float most(float a, float b) { return fmaxf(a, b); }
__device__ inline double most(double a, double b) { return fmax(a, b); }

__device__ inline Value largest_of(Value a, Value b) { return most(a, b); }
__device__ inline Value sum_of(Value a, Value b) { return a + b; }

#define KEPT 16

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
        largest = most(largest, kept[i]);
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
extern "C" __global__ void __launch_bounds__(1024) softmax(const Stored *x, Stored *y, u64 rows, u32 n, u32 width)
{
    if (width > 1 && aligned(x) && aligned(y)) {
        softmax_in_packs<LANES>(x, y, rows, n);
    } else {
        softmax_in_packs<1>(x, y, rows, n);
    }
}

// The largest of the elements that a thread has seen, and the sum of the exponentials below it.
struct Seen {
    Value largest, sum;

    // The exponential of a difference, of which both may be minus infinity.
    static __device__ Value below(Value value, Value largest)
    {
        return value == Traits<Value>::lowest() ? (Value)0 : exponential(value - largest);
    }

    template <int WIDTH> __device__ void see(const Stored *elements)
    {
        Value values[WIDTH], top = largest;
#pragma unroll
        for (int lane = 0; lane < WIDTH; lane++) {
            values[lane] = widen(elements[lane]);
            top = most(top, values[lane]);
        }
        if (top > largest) {
            sum *= below(largest, top);
            largest = top;
        }
#pragma unroll
        for (int lane = 0; lane < WIDTH; lane++) {
            sum += below(values[lane], largest);
        }
    }
};

// Longer rows are read twice.
template <int WIDTH> __device__ inline void softmax_twice(const Stored *x, Stored *y, u64 n)
{
    typedef Pack<Stored, WIDTH> P;
    __shared__ Value tile[WARPS];
    u64 packs = n / WIDTH;
    const P *from = (const P *)(x + blockIdx.x * n);
    P *to = (P *)(y + blockIdx.x * n);
    Seen seen = {Traits<Value>::lowest(), 0};
#pragma unroll 2
    for (u64 pack = threadIdx.x; pack < packs; pack += blockDim.x) {
        P loaded = from[pack];
        seen.see<WIDTH>(loaded.lanes);
    }
    Value largest = fold_row(tile, seen.largest, largest_of);
    Value sum = fold_row(tile, seen.sum * Seen::below(seen.largest, largest), sum_of);
    Value scale = (Value)1 / sum;
#pragma unroll 2
    for (u64 pack = threadIdx.x; pack < packs; pack += blockDim.x) {
        P loaded = from[pack], result;
#pragma unroll
        for (int lane = 0; lane < WIDTH; lane++) {
            result.lanes[lane] = narrow(exponential(widen(loaded.lanes[lane]) - largest) * scale);
        }
        to[pack] = result;
    }
}

// A block for each row.
extern "C" __global__ void __launch_bounds__(1024) softmax_long(const Stored *x, Stored *y, u64 n, u32 width)
{
    if (width > 1 && aligned(x) && aligned(y)) {
        softmax_twice<LANES>(x, y, n);
    } else {
        softmax_twice<1>(x, y, n);
    }
}
