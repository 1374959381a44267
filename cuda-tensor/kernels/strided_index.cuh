// Offsets of the elements of strided operands. The host merges dimensions that are contiguous with each other, so most
// tensors have one dimension.

#define MAX_RANK 8

// `OPERANDS` operands of one shape, in row-major order. Strides are in elements; a stride of 0 broadcasts an operand.
template <int OPERANDS> struct StridedIndex {
    u64 n;
    u64 rank;
    u64 shape[MAX_RANK];
    u64 strides[OPERANDS][MAX_RANK];

    // Whether the elements of each pack of `lanes` elements have one stride: there is one row, or each row, along the last
    // dimension, has whole packs.
    __device__ bool has_packs(u64 lanes) const { return rank == 1 || (rank > 1 && shape[rank - 1] % lanes == 0); }

    // The stride between neighbouring elements of a row.
    __device__ u64 step(int operand) const { return strides[operand][rank - 1]; }

    // Computes the offset of element `index` in each operand.
    __device__ void at(u64 index, u64 *positions) const
    {
        for (int operand = 0; operand < OPERANDS; operand++) {
            positions[operand] = 0;
        }
#pragma unroll 1
        for (u64 dimension = rank; dimension-- > 1;) {
            u64 size = shape[dimension], place;
            // A division of 32 bits is several times as fast as one of 64 bits.
            if ((index | size) >> 32 == 0) {
                place = (u32)index % (u32)size;
                index = (u32)index / (u32)size;
            } else {
                place = index % size;
                index /= size;
            }
            for (int operand = 0; operand < OPERANDS; operand++) {
                positions[operand] += place * strides[operand][dimension];
            }
        }
        // The rest of the index is the place in the first dimension. Without dimensions it is 0.
        for (int operand = 0; operand < OPERANDS; operand++) {
            positions[operand] += index * strides[operand][0];
        }
    }
};
