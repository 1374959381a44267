// y[r][c] = exp(x[r][c] - m) / (sum of exp(x[r][k] - m) over k), where m is the largest element of row r. A row of threads
// computes one row. y may be x.

__device__ inline float exponential(float x) { return expf(x); }
__device__ inline double exponential(double x) { return exp(x); }

// `most` ignores NaN. The exponential of NaN is NaN, so the sum still becomes NaN.
__device__ inline float most(float a, float b) { return fmaxf(a, b); }
__device__ inline double most(double a, double b) { return fmax(a, b); }

__device__ inline Value largest_of(Value a, Value b) { return most(a, b); }
__device__ inline Value sum_of(Value a, Value b) { return a + b; }

// Computes a row that stays in registers, at most KEPT elements for each thread. A thread takes packs of WIDTH neighbours.
template <int KEPT, int WIDTH>
__device__ inline void softmax_in_packs(const Stored *x, Stored *y, u64 rows, u32 n, bool is_aligned)
{
    typedef Pack<Stored, WIDTH> P;
    __shared__ Value tile[WARPS];
    u64 row = (u64)blockIdx.x * blockDim.y + threadIdx.y;
    u32 packs = row < rows ? n / WIDTH : 0;
    const Stored *from = x + row * n;
    Stored *to = y + row * n;
    Value kept[KEPT];
    Value largest = Traits<Value>::lowest();
#pragma unroll
    for (int i = 0; i < KEPT / WIDTH; i++) {
        u32 pack = i * blockDim.x + threadIdx.x;
        if (pack < packs) {
            P loaded = load_pack<WIDTH>(from + pack * WIDTH, is_aligned);
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
        // Elements past the end of the row add 0, unless the whole row is minus infinity.
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
            store_pack<WIDTH>(to + pack * WIDTH, result, is_aligned);
        }
    }
}

// Rows of whole packs are read in packs; `width` is the number of elements of a pack, or 1. The launch bound limits a thread to
// 64 registers, so that more rows are in flight.
#define SOFTMAX(KEPT)                                                                                                  \
    extern "C" __global__ void __launch_bounds__(1024)                                                                 \
        softmax_##KEPT(const Stored *x, Stored *y, u64 rows, u32 n, u32 width)                                         \
    {                                                                                                                  \
        if (width > 1) {                                                                                               \
            softmax_in_packs<KEPT, LANES>(x, y, rows, n, aligned(x) && aligned(y));                                    \
        } else {                                                                                                       \
            softmax_in_packs<KEPT, 1>(x, y, rows, n, true);                                                            \
        }                                                                                                              \
    }
SOFTMAX(8)
SOFTMAX(16)
// 32 doubles need 64 registers by themselves.
#ifndef DOUBLE
SOFTMAX(32)
#endif

// The largest element that a thread has read so far, and the sum of the exponentials of the differences to it.
struct Seen {
    Value largest, sum;

    // exp(value - largest), or 0 if `value` is minus infinity. The difference would be NaN if both are.
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

// Computes a longer row, which it reads twice.
template <int WIDTH> __device__ inline void softmax_twice(const Stored *x, Stored *y, u64 n, bool is_aligned)
{
    typedef Pack<Stored, WIDTH> P;
    __shared__ Value tile[WARPS];
    u64 packs = n / WIDTH;
    const Stored *from = x + blockIdx.x * n;
    Stored *to = y + blockIdx.x * n;
    Seen seen = {Traits<Value>::lowest(), 0};
#pragma unroll 2
    for (u64 pack = threadIdx.x; pack < packs; pack += blockDim.x) {
        P loaded = load_pack<WIDTH>(from + pack * WIDTH, is_aligned);
        seen.see<WIDTH>(loaded.lanes);
    }
    Value largest = fold_row(tile, seen.largest, largest_of);
    Value sum = fold_row(tile, seen.sum * Seen::below(seen.largest, largest), sum_of);
    Value scale = (Value)1 / sum;
#pragma unroll 2
    for (u64 pack = threadIdx.x; pack < packs; pack += blockDim.x) {
        P loaded = load_pack<WIDTH>(from + pack * WIDTH, is_aligned), result;
#pragma unroll
        for (int lane = 0; lane < WIDTH; lane++) {
            result.lanes[lane] = narrow(exponential(widen(loaded.lanes[lane]) - largest) * scale);
        }
        store_pack<WIDTH>(to + pack * WIDTH, result, is_aligned);
    }
}

// Rows that do not stay in registers, with a block for each row.
extern "C" __global__ void __launch_bounds__(1024) softmax_long(const Stored *x, Stored *y, u64 n, u32 width)
{
    if (width > 1) {
        softmax_twice<LANES>(x, y, n, aligned(x) && aligned(y));
    } else {
        softmax_twice<1>(x, y, n, true);
    }
}
