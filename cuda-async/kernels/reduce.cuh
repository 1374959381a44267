// Sums, products, and the largest and smallest elements along one dimension of [outer, n, inner] in row-major order, in
// chunks of that dimension: y is [outer, chunks, inner]. A second launch folds the chunks. f16 and bf16 have float partial
// results. Integers wrap.

struct Sum {
    static __device__ Value start() { return 0; }
    static __device__ Value combine(Value a, Value b) { return Wrapping<Value>::add(a, b); }
};
struct Product {
    static __device__ Value start() { return 1; }
    static __device__ Value combine(Value a, Value b) { return Wrapping<Value>::mul(a, b); }
};
struct Largest {
    static __device__ Value start() { return Traits<Value>::lowest(); }
    static __device__ Value combine(Value a, Value b) { return larger(a, b); }
};
struct Smallest {
    static __device__ Value start() { return Traits<Value>::highest(); }
    static __device__ Value combine(Value a, Value b) { return smaller(a, b); }
};

template <typename T, int N> struct alignas(sizeof(T) * N) Pack { T lanes[N]; };

// inner is 1. A row of threads folds one chunk of one row of x. Each thread takes whole packs of 16 bytes, also where the
// row is not aligned to them, so the order does not depend on the address.
template <typename Fold, typename From, typename To>
__device__ void rows_of(const From *x, To *y, u64 rows, u64 n, u64 chunk, u64 chunks)
{
    const int LANES = 16 / sizeof(From);
    __shared__ Value tile[WARPS];
    u64 part = (u64)blockIdx.x * blockDim.y + threadIdx.y, row = part / chunks, place = part % chunks;
    Value lanes[LANES];
#pragma unroll
    for (int lane = 0; lane < LANES; lane++) {
        lanes[lane] = Fold::start();
    }
    if (row < rows) {
        u64 from = place * chunk, size = n - from < chunk ? n - from : chunk;
        const From *own = x + row * n + from;
        bool aligned = (u64)own % 16 == 0;
        u64 whole = size / LANES;
#pragma unroll (16 / LANES)
        for (u64 pack = threadIdx.x; pack < whole; pack += blockDim.x) {
            Pack<From, LANES> loaded;
            if (aligned) {
                loaded = ((const Pack<From, LANES> *)own)[pack];
            } else {
#pragma unroll
                for (int lane = 0; lane < LANES; lane++) {
                    loaded.lanes[lane] = own[pack * LANES + lane];
                }
            }
#pragma unroll
            for (int lane = 0; lane < LANES; lane++) {
                lanes[lane] = Fold::combine(lanes[lane], widen(loaded.lanes[lane]));
            }
        }
        u64 last = whole * LANES + threadIdx.x;
        if (last < size) {
            lanes[0] = Fold::combine(lanes[0], widen(own[last]));
        }
    }
#pragma unroll
    for (int width = LANES / 2; width > 0; width /= 2) {
#pragma unroll
        for (int lane = 0; lane < width; lane++) {
            lanes[lane] = Fold::combine(lanes[lane], lanes[lane + width]);
        }
    }
    Value folded = fold_row(tile, lanes[0], [](Value a, Value b) { return Fold::combine(a, b); });
    if (row < rows && threadIdx.x == 0) {
        y[row * chunks + place] = Narrow<To, Value>::of(folded);
    }
}

// A thread folds one chunk of one column. Neighbouring threads read neighbouring columns.
template <typename Fold, typename From, typename To>
__device__ void columns_of(const From *x, To *y, u64 outer, u64 n, u64 inner, u64 chunk, u64 chunks)
{
    u64 parts = outer * chunks * inner;
    for (u64 part = first(); part < parts; part += threads()) {
        u64 column = part % inner, place = part / inner % chunks, block = part / inner / chunks;
        u64 from = place * chunk, to = n - from < chunk ? n : from + chunk;
        const From *own = x + block * n * inner + column;
        Value value = Fold::start();
#pragma unroll 8
        for (u64 row = from; row < to; row++) {
            value = Fold::combine(value, widen(own[row * inner]));
        }
        y[part] = Narrow<To, Value>::of(value);
    }
}

// From elements to an element, from elements to a partial result, and from partial results to an element.
#define FOLD_(NAME, FOLD, SUFFIX, FROM, TO)                                                                            \
    extern "C" __global__ void NAME##_rows##SUFFIX(const FROM *x, TO *y, u64 rows, u64 n, u64 chunk, u64 chunks)       \
    {                                                                                                                  \
        rows_of<FOLD>(x, y, rows, n, chunk, chunks);                                                                   \
    }                                                                                                                  \
    extern "C" __global__ void NAME##_columns##SUFFIX(                                                                 \
        const FROM *x, TO *y, u64 outer, u64 n, u64 inner, u64 chunk, u64 chunks)                                      \
    {                                                                                                                  \
        columns_of<FOLD>(x, y, outer, n, inner, chunk, chunks);                                                        \
    }
// The largest and the smallest element need no wider partial results.
FOLD_(max, Largest, , Stored, Stored)
FOLD_(min, Smallest, , Stored, Stored)
#ifdef HALF
#define FOLD(NAME, TYPE)                                                                                               \
    FOLD_(NAME, TYPE, , Stored, Stored)                                                                                \
    FOLD_(NAME, TYPE, _partial, Stored, Value)                                                                         \
    FOLD_(NAME, TYPE, _finish, Value, Stored)
#else
#define FOLD(NAME, TYPE) FOLD_(NAME, TYPE, , Stored, Stored)
#endif
#ifndef BOOLEAN
FOLD(sum, Sum)
FOLD(product, Product)
#endif

// A candidate of argmax and argmin. Of equal elements the first one wins, and NaN wins over every number.
struct Found {
    Value value;
    u64 at;
};

template <bool MAX> __device__ inline bool wins(Found a, Found b)
{
    bool a_nan = is_nan(a.value), b_nan = is_nan(b.value);
    if (a_nan || b_nan || a.value == b.value) {
        return a_nan == b_nan ? a.at < b.at : a_nan;
    }
    return MAX ? a.value > b.value : a.value < b.value;
}

#define NO_ELEMENT 0xffffffffffffffffull

template <bool MAX> __device__ inline Found better(Found a, Found b)
{
    if (a.at == NO_ELEMENT || b.at == NO_ELEMENT) {
        return a.at == NO_ELEMENT ? b : a;
    }
    return wins<MAX>(a, b) ? a : b;
}

// Each chunk of a row of x gives the place of its winner in the row. With `places`, chunks of earlier winners are folded.
template <bool MAX>
__device__ void place_of(const Stored *x, const u64 *places, u64 *y, u64 rows, u64 n, u64 length, u64 chunk, u64 chunks)
{
    __shared__ Value values[WARPS];
    __shared__ u64 ats[WARPS];
    u64 part = (u64)blockIdx.x * blockDim.y + threadIdx.y, row = part / chunks, place = part % chunks;
    Found best = {0, NO_ELEMENT};
    if (row < rows) {
        u64 from = place * chunk, to = length - from < chunk ? length : from + chunk;
        for (u64 i = from + threadIdx.x; i < to; i += blockDim.x) {
            u64 at = places ? places[row * length + i] : i;
            Found next = {widen(x[row * n + at]), at};
            best = better<MAX>(best, next);
        }
    }
    for (u32 distance = 16; distance > 0; distance /= 2) {
        Found other = {exchange(best.value, distance), exchange(best.at, distance)};
        best = better<MAX>(best, other);
    }
    u32 warps = blockDim.x / 32;
    if (warps > 1) {
        if (threadIdx.x % 32 == 0) {
            values[threadIdx.x / 32] = best.value;
            ats[threadIdx.x / 32] = best.at;
        }
        __syncthreads();
        for (u32 warp = 0; warp < warps; warp++) {
            Found other = {values[warp], ats[warp]};
            best = better<MAX>(best, other);
        }
    }
    if (row < rows && threadIdx.x == 0) {
        y[part] = best.at;
    }
}

#define PLACE(NAME, MAX)                                                                                               \
    extern "C" __global__ void NAME(const Stored *x, u64 *y, u64 rows, u64 n, u64 chunk, u64 chunks)                   \
    {                                                                                                                  \
        place_of<MAX>(x, nullptr, y, rows, n, n, chunk, chunks);                                                       \
    }                                                                                                                  \
    extern "C" __global__ void NAME##_finish(const Stored *x, const u64 *places, u64 *y, u64 rows, u64 n, u64 length)  \
    {                                                                                                                  \
        place_of<MAX>(x, places, y, rows, n, length, length, 1);                                                       \
    }
PLACE(argmax, true)
PLACE(argmin, false)
