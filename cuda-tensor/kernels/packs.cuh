// Elementwise operations in packs, if the addresses are aligned to packs. A pack of the operands has 16 bytes, and a pack of the
// results has as many elements.

#include "pack.cuh"

#define LANES (16 / sizeof(Stored))

__device__ inline bool aligned(const void *x) { return (u64)x % 16 == 0; }

// y[i] = f(x[i])
template <int COUNT, typename R, typename F> __device__ inline void each(const Stored *x, R *y, u64 n, F f)
{
    typedef Pack<R, LANES> Results;
    u64 packs = aligned(x) && (u64)y % sizeof(Results) == 0 ? n / LANES : 0;
    uint4 loaded[COUNT];
    packs = each_pack<COUNT>(
        packs, [&](int k, u64 i) { loaded[k] = ((const uint4 *)x)[i]; },
        [&](int k, u64 i) {
            Pack<Stored, LANES> own = pack_of<Stored, LANES>(loaded[k]);
            Results result;
#pragma unroll
            for (int lane = 0; lane < LANES; lane++) {
                result.lanes[lane] = f(widen(own.lanes[lane]));
            }
            ((Results *)y)[i] = result;
        });
    for (u64 i = packs * LANES + first(); i < n; i += threads()) {
        y[i] = f(widen(x[i]));
    }
}

// The pack of f(a, b) for each lane.
template <typename R, typename F>
__device__ inline Pack<R, LANES> combined(Pack<Stored, LANES> a, Pack<Stored, LANES> b, F f)
{
    Pack<R, LANES> result;
#pragma unroll
    for (int lane = 0; lane < LANES; lane++) {
        result.lanes[lane] = f(widen(a.lanes[lane]), widen(b.lanes[lane]));
    }
    return result;
}

// y[i] = f(a[i], b[i])
template <int COUNT, typename R, typename F>
__device__ inline void each2(const Stored *a, const Stored *b, R *y, u64 n, F f)
{
    typedef Pack<R, LANES> Results;
    u64 packs = aligned(a) && aligned(b) && (u64)y % sizeof(Results) == 0 ? n / LANES : 0;
    uint4 from_a[COUNT], from_b[COUNT];
    packs = each_pack<COUNT>(
        packs,
        [&](int k, u64 i) {
            from_a[k] = ((const uint4 *)a)[i];
            from_b[k] = ((const uint4 *)b)[i];
        },
        [&](int k, u64 i) {
            ((Results *)y)[i] = combined<R>(pack_of<Stored, LANES>(from_a[k]), pack_of<Stored, LANES>(from_b[k]), f);
        });
    for (u64 i = packs * LANES + first(); i < n; i += threads()) {
        y[i] = f(widen(a[i]), widen(b[i]));
    }
}

// Loads and stores a pack, element by element unless the address is aligned. A thread has the same elements in both cases.
template <int WIDTH, typename T> __device__ inline Pack<T, WIDTH> load_pack(const T *from, bool is_aligned)
{
    if (is_aligned) {
        return *(const Pack<T, WIDTH> *)from;
    }
    Pack<T, WIDTH> pack;
#pragma unroll
    for (int lane = 0; lane < WIDTH; lane++) {
        pack.lanes[lane] = from[lane];
    }
    return pack;
}

template <int WIDTH> __device__ inline void store_pack(Stored *to, Pack<Stored, WIDTH> pack, bool is_aligned)
{
    if (is_aligned) {
        *(Pack<Stored, WIDTH> *)to = pack;
        return;
    }
#pragma unroll
    for (int lane = 0; lane < WIDTH; lane++) {
        to[lane] = pack.lanes[lane];
    }
}
