// Positions of the elements of strided operands. The host merges dimensions that lie together, so most tensors have one.

#define MAX_RANK 8

// `OPERANDS` operands are visited in row-major order of one shape. Strides are in elements; 0 repeats an operand.
template <int OPERANDS> struct Walk {
    u64 n;
    u64 rank;
    u64 shape[MAX_RANK];
    u64 strides[OPERANDS][MAX_RANK];

    // The positions of element `index` in each operand.
    __device__ void at(u64 index, u64 *positions) const
    {
        for (int operand = 0; operand < OPERANDS; operand++) {
            positions[operand] = 0;
        }
        for (u64 dimension = rank; dimension-- > 0;) {
            u64 size = shape[dimension], place;
            // A division of 32 bits is several times as fast.
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
    }
};
