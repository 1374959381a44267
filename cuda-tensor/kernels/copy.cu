// Kernels for which only the size of an element matters, and those of generators.

#include "scalar.cuh"
#include "strided_index.cuh"
#include "pack.cuh"

// The number of packs that a thread loads before it stores them: `COPY_PACKS` in `tensor/operations/copy`.
#define COPY_PACKS 4

// y[i] = x[i]; both may be strided, and x may be broadcast
template <typename T> __device__ inline void copy(const T *x, T *y, const StridedIndex<2> &walk)
{
    const int LANES = 16 / sizeof(T);
    u64 packs = walk.has_packs(LANES) ? walk.n / LANES : 0;
    uint4 loaded[COPY_PACKS];
    u64 into[COPY_PACKS];
    packs = each_pack<COPY_PACKS>(
        packs,
        [&](int k, u64 i) {
            u64 at[2];
            walk.at(i * LANES, at);
            loaded[k] = load_lanes<LANES>(x + at[0], walk.step(0));
            into[k] = at[1];
        },
        [&](int k, u64 i) { store_lanes<LANES>(y + into[k], walk.step(1), loaded[k]); });
    for (u64 i = packs * LANES + first(); i < walk.n; i += threads()) {
        u64 at[2];
        walk.at(i, at);
        y[at[1]] = x[at[0]];
    }
}

#define COPY(T)                                                                                                        \
    extern "C" __global__ void copy_##T(const T *x, T *y, StridedIndex<2> walk)                                        \
    {                                                                                                                  \
        copy(x, y, walk);                                                                                              \
    }
COPY(u8)
COPY(u16)
COPY(u32)
COPY(u64)

// Takes `blocks` blocks of a generator: copies its state, and advances it. One thread. One launch does both, so that no two
// draws read the same state.
extern "C" __global__ void take(u64 *state, u64 *taken, u64 blocks)
{
    taken[0] = state[0];
    taken[1] = state[1];
    state[1] += blocks;
}
