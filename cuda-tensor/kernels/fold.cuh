// Reductions of the values of the threads that work on one row. A row has blockDim.x threads, a multiple of 32, and a block
// has blockDim.y rows. The order depends on the launch shape only, so results are reproducible bit for bit.

template <typename T> __device__ inline T exchange(T value, u32 distance)
{
    return __shfl_xor_sync(0xffffffff, value, distance);
}
// Smaller integers are exchanged as 32-bit integers.
#define EXCHANGE(T)                                                                                                    \
    template <> __device__ inline T exchange<T>(T value, u32 distance)                                                 \
    {                                                                                                                  \
        return (T)__shfl_xor_sync(0xffffffff, (i32)value, distance);                                                   \
    }
EXCHANGE(i8) EXCHANGE(u8) EXCHANGE(i16) EXCHANGE(u16)

// Reduces the values of a row's threads, and returns the result in all of them. `tile` has an element for each warp of the
// block.
template <typename T, typename Combine> __device__ inline T fold_row(T *tile, T value, Combine combine)
{
    for (u32 distance = 16; distance > 0; distance /= 2) {
        value = combine(value, exchange(value, distance));
    }
    u32 warps = blockDim.x / 32;
    if (warps > 1) {
        T *row = tile + threadIdx.y * warps;
        if (threadIdx.x % 32 == 0) {
            row[threadIdx.x / 32] = value;
        }
        __syncthreads();
        value = row[0];
        for (u32 warp = 1; warp < warps; warp++) {
            value = combine(value, row[warp]);
        }
        // The next reduction writes the same elements of `tile`.
        __syncthreads();
    }
    return value;
}

#define WARPS 32
