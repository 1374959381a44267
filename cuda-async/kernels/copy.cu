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

// Transposes [batch, rows, columns] through shared memory, in tiles of 32 by 32, with blocks of 32 by 8.
#define TRANSPOSE(T)                                                                                                   \
    extern "C" __global__ void transpose_##T(const T *x, T *y, u64 batch, u64 rows, u64 columns)                       \
    {                                                                                                                  \
        __shared__ T tile[32][33];                                                                                     \
        u64 across = (columns + 31) / 32, down = (rows + 31) / 32;                                                     \
        for (u64 part = blockIdx.x; part < batch * across * down; part += gridDim.x) {                                 \
            u64 image = part / (across * down), column = part % across * 32, row = part / across % down * 32;          \
            const T *from = x + image * rows * columns;                                                                \
            T *to = y + image * rows * columns;                                                                        \
            for (u32 i = threadIdx.y; i < 32; i += 8) {                                                                \
                if (row + i < rows && column + threadIdx.x < columns) {                                                \
                    tile[i][threadIdx.x] = from[(row + i) * columns + column + threadIdx.x];                           \
                }                                                                                                      \
            }                                                                                                          \
            __syncthreads();                                                                                           \
            for (u32 i = threadIdx.y; i < 32; i += 8) {                                                                \
                if (column + i < columns && row + threadIdx.x < rows) {                                                \
                    to[(column + i) * rows + row + threadIdx.x] = tile[threadIdx.x][i];                                \
                }                                                                                                      \
            }                                                                                                          \
            __syncthreads();                                                                                           \
        }                                                                                                              \
    }
TRANSPOSE(u8)
TRANSPOSE(u16)
TRANSPOSE(u32)
TRANSPOSE(u64)

// Takes `blocks` blocks of a generator: copies its state, and advances it. One thread. One launch does both, so that no two
// draws read the same state.
extern "C" __global__ void take(u64 *state, u64 *taken, u64 blocks)
{
    taken[0] = state[0];
    taken[1] = state[1];
    state[1] += blocks;
}
