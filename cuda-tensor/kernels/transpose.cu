// Kernels that transpose matrices, through tiles in shared memory.

#include "scalar.cuh"
#include "pack.cuh"

// The rows of threads in a block. A row has 32 threads.
#define THREAD_ROWS 8

// The odd length of the rows spreads a column over the banks of the memory.
template <typename T> struct Tile {
    // The neighbouring elements that a thread loads and stores at once: 8 bytes, but at most 4 elements, so that the tile
    // is small. `tile_side` in `tensor/operations/copy`.
    static const int LANES = sizeof(T) == 1 ? 4 : 8 / sizeof(T);
    static const int SIDE = 32 * LANES;
    // The rows that a thread loads before it stores them.
    static const int BATCH = SIDE / THREAD_ROWS < 8 ? SIDE / THREAD_ROWS : 8;
    T at[SIDE][SIDE + 1];
};

// Calls `visit(row, column, k)` for each group of WIDTH neighbouring elements that this thread handles in BATCH rows of the
// tile from row `first`, inside of `height` rows and `width` columns. k numbers the groups.
template <typename T, int WIDTH, typename Visit>
__device__ inline void each_group(u32 first, u32 height, u32 width, Visit visit)
{
#pragma unroll
    for (int k = 0; k < Tile<T>::BATCH; k++) {
#pragma unroll
        for (int part = 0; part < Tile<T>::LANES / WIDTH; part++) {
            u32 row = first + k * THREAD_ROWS, column = (part * 32 + threadIdx.x) * WIDTH;
            if (row < height && column < width) {
                visit(row, column, k * (Tile<T>::LANES / WIDTH) + part);
            }
        }
    }
}

// tile[row][column] = from[row][column]
template <int WIDTH, typename T>
__device__ inline void load_tile(Tile<T> &tile, const T *from, u64 stride, u32 height, u32 width)
{
    typedef typename Bits<sizeof(T) * WIDTH>::Type Loaded;
    for (u32 first = threadIdx.y; first < Tile<T>::SIDE; first += Tile<T>::BATCH * THREAD_ROWS) {
        Loaded loaded[Tile<T>::BATCH * Tile<T>::LANES / WIDTH];
        each_group<T, WIDTH>(first, height, width, [&](u32 row, u32 column, int k) {
            loaded[k] = *(const Loaded *)(from + row * stride + column);
        });
        each_group<T, WIDTH>(first, height, width, [&](u32 row, u32 column, int k) {
            Pack<T, WIDTH> pack = pack_of<T, WIDTH>(loaded[k]);
#pragma unroll
            for (int lane = 0; lane < WIDTH; lane++) {
                tile.at[row][column + lane] = pack.lanes[lane];
            }
        });
    }
}

// to[row][column] = tile[column][row]
template <int WIDTH, typename T>
__device__ inline void store_tile(const Tile<T> &tile, T *to, u64 stride, u32 height, u32 width)
{
    typedef typename Bits<sizeof(T) * WIDTH>::Type Stored;
    for (u32 first = threadIdx.y; first < Tile<T>::SIDE; first += Tile<T>::BATCH * THREAD_ROWS) {
        each_group<T, WIDTH>(first, height, width, [&](u32 row, u32 column, int) {
            Pack<T, WIDTH> pack;
#pragma unroll
            for (int lane = 0; lane < WIDTH; lane++) {
                pack.lanes[lane] = tile.at[column + lane][row];
            }
            *(Stored *)(to + row * stride + column) = *(const Stored *)&pack;
        });
    }
}

// Whether the rows of a matrix consist of aligned groups of LANES elements.
template <typename T> __device__ inline bool in_groups(const T *start, u64 stride)
{
    return Tile<T>::LANES == 1 || stride % Tile<T>::LANES == 0 && (u64)start % (sizeof(T) * Tile<T>::LANES) == 0;
}

// Transposes [batch, rows, columns]. Blocks are 32 by THREAD_ROWS.
template <typename T> __device__ inline void transpose(const T *x, T *y, u64 batch, u64 rows, u64 columns)
{
    const int SIDE = Tile<T>::SIDE, LANES = Tile<T>::LANES;
    __shared__ Tile<T> tile;
    u64 across = (columns + SIDE - 1) / SIDE, down = (rows + SIDE - 1) / SIDE;
    for (u64 part = blockIdx.x; part < batch * across * down; part += gridDim.x) {
        u64 image = part / down / across * rows * columns;
        u64 column = part / down % across * SIDE, row = part % down * SIDE;
        const T *from = x + image + row * columns + column;
        T *to = y + image + column * rows + row;
        u32 height = rows - row < SIDE ? rows - row : SIDE, width = columns - column < SIDE ? columns - column : SIDE;
        if (in_groups(from, columns)) {
            load_tile<LANES>(tile, from, columns, height, width);
        } else {
            load_tile<1>(tile, from, columns, height, width);
        }
        __syncthreads();
        if (in_groups(to, rows)) {
            store_tile<LANES>(tile, to, rows, width, height);
        } else {
            store_tile<1>(tile, to, rows, width, height);
        }
        __syncthreads();
    }
}

#define TRANSPOSE(T)                                                                                                   \
    extern "C" __global__ void transpose_##T(const T *x, T *y, u64 batch, u64 rows, u64 columns)                       \
    {                                                                                                                  \
        transpose(x, y, batch, rows, columns);                                                                         \
    }
TRANSPOSE(u8)
TRANSPOSE(u16)
TRANSPOSE(u32)
TRANSPOSE(u64)
