// Sums, products, and the largest and smallest elements along one dimension of [outer, n, inner] in row-major order, in
// chunks of that dimension: y is [outer, chunks, inner]. A second launch reduces the results of the chunks. Partial sums and
// products of f16 and bf16 are float. Integers wrap.

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
    static __device__ Value combine(Value a, Value b) { return larger_of(a, b); }
};
struct Smallest {
    static __device__ Value start() { return Traits<Value>::highest(); }
    static __device__ Value combine(Value a, Value b) { return smaller_of(a, b); }
};

template <typename Fold, typename From, int WIDTH>
__device__ inline void combine_pack(Value (&lanes)[WIDTH], Pack<From, WIDTH> pack)
{
#pragma unroll
    for (int lane = 0; lane < WIDTH; lane++) {
        lanes[lane] = Fold::combine(lanes[lane], widen(pack.lanes[lane]));
    }
}

// Combines COUNT packs that are `distance` packs apart. All are loaded before the first is used.
template <typename Fold, int COUNT, typename From, int WIDTH, typename Distance>
__device__ inline void combine_packs(Value (&lanes)[WIDTH], const Pack<From, WIDTH> *packs, Distance distance)
{
    typedef typename Bits<sizeof(Pack<From, WIDTH>)>::Type Loaded;
    Loaded loaded[COUNT];
#pragma unroll
    for (int k = 0; k < COUNT; k++) {
        loaded[k] = ((const Loaded *)packs)[k * distance];
    }
#pragma unroll
    for (int k = 0; k < COUNT; k++) {
        combine_pack<Fold>(lanes, pack_of<From, WIDTH>(loaded[k]));
    }
}

// inner is 1. A row of threads reduces one chunk of one row of x. Each thread takes whole packs of 16 bytes, also where the
// row is not aligned to 16 bytes, so the order does not depend on the address.
template <typename Fold, typename From, typename To>
__device__ void rows_of(const From *x, To *y, u64 rows, u64 n, u64 chunk, u64 chunks)
{
    const int WIDTH = 16 / sizeof(From);
    // The maximum number of packs that a thread has in flight. 8 is the fastest on an H200.
    const int LOADS = 8;
    __shared__ Value tile[WARPS];
    u64 part = (u64)blockIdx.x * blockDim.y + threadIdx.y;
    u64 row = chunks == 1 ? part : part / chunks, place = chunks == 1 ? 0 : part - row * chunks;
    Value lanes[WIDTH];
#pragma unroll
    for (int lane = 0; lane < WIDTH; lane++) {
        lanes[lane] = Fold::start();
    }
    if (row < rows) {
        u64 from = place * chunk, size = n - from < chunk ? n - from : chunk;
        const From *own = x + row * n + from;
        const Pack<From, WIDTH> *packs = (const Pack<From, WIDTH> *)own;
        u64 whole = size / WIDTH, pack = threadIdx.x;
        bool is_aligned = aligned(own);
        if (is_aligned) {
            for (; pack + (LOADS - 1) * blockDim.x < whole; pack += LOADS * blockDim.x) {
                combine_packs<Fold, LOADS>(lanes, packs + pack, blockDim.x);
            }
            if (pack + (LOADS / 2 - 1) * blockDim.x < whole) {
                combine_packs<Fold, LOADS / 2>(lanes, packs + pack, blockDim.x);
                pack += LOADS / 2 * blockDim.x;
            }
        }
#pragma unroll 1
        for (; pack < whole; pack += blockDim.x) {
            combine_pack<Fold>(lanes, load_pack<WIDTH>(own + pack * WIDTH, is_aligned));
        }
        u64 last = whole * WIDTH + threadIdx.x;
        if (last < size) {
            lanes[0] = Fold::combine(lanes[0], widen(own[last]));
        }
    }
#pragma unroll
    for (int width = WIDTH / 2; width > 0; width /= 2) {
#pragma unroll
        for (int lane = 0; lane < width; lane++) {
            lanes[lane] = Fold::combine(lanes[lane], lanes[lane + width]);
        }
    }
    Value folded = fold_row(tile, lanes[0], [](Value a, Value b) { return Fold::combine(a, b); });
    if (row < rows && threadIdx.x == 0) {
        y[part] = Narrow<To, Value>::of(folded);
    }
}

// The maximum number of rows of threads of a block that reduces columns.
#define COLUMN_ROWS 8
#define COLUMN_PACKS 32

// A column of threads reduces one chunk of `WIDTH` neighbouring columns of x. Its thread y takes the elements y, y + blockDim.y, ..
// of the chunk. Neighbouring threads of a row read neighbouring columns. With several rows, a block has COLUMN_PACKS columns.
template <typename Fold, int WIDTH, typename From, typename To>
__device__ void columns_in_packs(const From *x, To *y, u64 outer, u64 n, u64 inner, u64 chunk, u64 chunks)
{
    // The number of packs that a thread has in flight.
    const int LOADS = 8;
    __shared__ Value tile[COLUMN_ROWS][COLUMN_PACKS][WIDTH];
    u64 packs = inner / WIDTH, parts = outer * chunks * packs;
    for (u64 of_block = (u64)blockIdx.x * blockDim.x; of_block < parts; of_block += threads()) {
        u64 part = of_block + threadIdx.x;
        u64 pack = part % packs, place = part / packs % chunks, block = part / packs / chunks;
        u64 from = place * chunk, to = part >= parts ? 0 : n - from < chunk ? n : from + chunk;
        const Pack<From, WIDTH> *own = (const Pack<From, WIDTH> *)x + block * n * packs + pack;
        Value values[WIDTH];
#pragma unroll
        for (int lane = 0; lane < WIDTH; lane++) {
            values[lane] = Fold::start();
        }
        u64 row = from + threadIdx.y;
        for (; row + (LOADS - 1) * blockDim.y < to; row += LOADS * blockDim.y) {
            combine_packs<Fold, LOADS>(values, own + row * packs, blockDim.y * packs);
        }
#pragma unroll 1
        for (; row < to; row += blockDim.y) {
            combine_packs<Fold, 1>(values, own + row * packs, 1);
        }
        if (blockDim.y > 1) {
            // The part before has read `tile`.
            __syncthreads();
#pragma unroll
            for (int lane = 0; lane < WIDTH; lane++) {
                tile[threadIdx.y][threadIdx.x][lane] = values[lane];
            }
            __syncthreads();
        }
        if (part < parts && threadIdx.y == 0) {
#pragma unroll
            for (int lane = 0; lane < WIDTH; lane++) {
                Value folded = values[lane];
                for (u32 other = 1; other < blockDim.y; other++) {
                    folded = Fold::combine(folded, tile[other][threadIdx.x][lane]);
                }
                y[(block * chunks + place) * inner + pack * WIDTH + lane] = Narrow<To, Value>::of(folded);
            }
        }
    }
}

template <typename Fold, typename From, typename To>
__device__ void columns_of(const From *x, To *y, u64 outer, u64 n, u64 inner, u64 chunk, u64 chunks)
{
    // Both cases add the elements of a column in the same order. Packs of 16 bytes are slower on an H200.
    const int WIDTH = 8 / sizeof(From);
    if (inner % WIDTH == 0 && (u64)x % 8 == 0) {
        columns_in_packs<Fold, WIDTH>(x, y, outer, n, inner, chunk, chunks);
    } else {
        columns_in_packs<Fold, 1>(x, y, outer, n, inner, chunk, chunks);
    }
}

// The kernels of a reduction. With the suffix _partial they write partial results, with _finish they read them.
#define FOLD_(NAME, FOLD, SUFFIX, FROM, TO)                                                                            \
    extern "C" __global__ void __launch_bounds__(1024) NAME##_rows##SUFFIX(const FROM *x, TO *y, u64 rows, u64 n, u64 chunk, u64 chunks)       \
    {                                                                                                                  \
        rows_of<FOLD>(x, y, rows, n, chunk, chunks);                                                                   \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(COLUMN_ROWS *COLUMN_PACKS) NAME##_columns##SUFFIX(                    \
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

// A candidate of argmax and argmin. The first of equal elements takes precedence, and NaN takes precedence over numbers.
struct Found {
    Value value;
    u64 at;
};

#define NO_ELEMENT 0xffffffffffffffffull

// Whether `value` replaces `best`, which comes before it.
template <bool MAX> __device__ inline bool wins(Value value, Value best)
{
    return (MAX ? value > best : value < best) || (is_nan(value) && !is_nan(best));
}

template <bool MAX> __device__ inline Found better(Found a, Found b)
{
    if (b.at < a.at) {
        Found first = b;
        b = a;
        a = first;
    }
    return b.at != NO_ELEMENT && wins<MAX>(b.value, a.value) ? b : a;
}

// Writes, for each chunk of a row of x, the index of its best element in the row. With `places`, the candidates of a row are
// the `length` elements at these indices.
template <bool MAX>
__device__ void place_of(const Stored *x, const u64 *places, u64 *y, u64 rows, u64 n, u64 length, u64 chunk, u64 chunks)
{
    __shared__ Value values[WARPS];
    __shared__ u64 ats[WARPS];
    u64 part = (u64)blockIdx.x * blockDim.y + threadIdx.y, row = part / chunks, place = part % chunks;
    Found best = {0, NO_ELEMENT};
    if (row < rows && places) {
        for (u64 i = threadIdx.x; i < length; i += blockDim.x) {
            u64 at = places[row * length + i];
            // Unreachable: an earlier launch wrote only indices below n.
            if (at >= n) {
                continue;
            }
            Found next = {widen(x[row * n + at]), at};
            best = better<MAX>(best, next);
        }
    } else if (row < rows) {
        // A chunk has less than 2^32 elements.
        u64 from = place * chunk;
        u32 size = (u32)(length - from < chunk ? length - from : chunk), at = threadIdx.x;
        const Stored *own = x + row * n + from;
        // A thread reads its elements in order, so a later element replaces the candidate only if it is better.
        u32 packs = aligned(own) ? size / LANES : 0;
        u32 found = 0xffffffff;
        Value value = 0;
#pragma unroll 4
        for (u32 pack = at; pack < packs; pack += blockDim.x) {
            Pack<Stored, LANES> loaded = ((const Pack<Stored, LANES> *)own)[pack];
#pragma unroll
            for (int lane = 0; lane < LANES; lane++) {
                Value next = widen(loaded.lanes[lane]);
                if (found == 0xffffffff || wins<MAX>(next, value)) {
                    value = next;
                    found = pack * LANES + lane;
                }
            }
        }
        for (at += packs * LANES; at < size; at += blockDim.x) {
            Value next = widen(own[at]);
            if (found == 0xffffffff || wins<MAX>(next, value)) {
                value = next;
                found = at;
            }
        }
        if (found != 0xffffffff) {
            best.value = value;
            best.at = from + found;
        }
    }
    for (u32 distance = 16; distance > 0; distance /= 2) {
        Found other = {exchange(best.value, distance), exchange(best.at, distance)};
        best = better<MAX>(best, other);
    }
    u32 warps = blockDim.x / 32;
    if (warps > 1) {
        // Each row of threads of the block has its own part of the arrays.
        u32 own = threadIdx.y * warps;
        if (threadIdx.x % 32 == 0) {
            values[own + threadIdx.x / 32] = best.value;
            ats[own + threadIdx.x / 32] = best.at;
        }
        __syncthreads();
        for (u32 warp = own; warp < own + warps; warp++) {
            Found other = {values[warp], ats[warp]};
            best = better<MAX>(best, other);
        }
    }
    if (row < rows && threadIdx.x == 0) {
        y[part] = best.at;
    }
}

#define PLACE(NAME, MAX)                                                                                               \
    extern "C" __global__ void __launch_bounds__(1024) NAME(const Stored *x, u64 *y, u64 rows, u64 n, u64 chunk, u64 chunks)                   \
    {                                                                                                                  \
        place_of<MAX>(x, nullptr, y, rows, n, n, chunk, chunks);                                                       \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(1024) NAME##_finish(const Stored *x, const u64 *places, u64 *y, u64 rows, u64 n, u64 length)  \
    {                                                                                                                  \
        place_of<MAX>(x, places, y, rows, n, length, length, 1);                                                       \
    }
PLACE(argmax, true)
PLACE(argmin, false)
