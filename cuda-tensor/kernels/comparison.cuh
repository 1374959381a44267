// The operations of `Comparison` in `tensor/operations/elementwise`.

// The number of packs that a thread loads before it computes: as in `PairKernels::of_comparison`.
#define COMPARE_PACKS 2

// The possible results of comparing two elements, as bits. A comparison is the set of results for which it holds.
#define LESS 1
#define EQUAL 2
#define GREATER 4
#define UNORDERED 8

__device__ inline u32 held_by(u32 operation)
{
    switch (operation) {
    case 0: return EQUAL;
    case 1: return LESS | GREATER | UNORDERED;
    case 2: return LESS;
    case 3: return LESS | EQUAL;
    case 4: return GREATER;
    default: return GREATER | EQUAL;
    }
}

__device__ inline u8 holds(u32 held, Value a, Value b)
{
    u32 result = a < b ? LESS : a == b ? EQUAL : a > b ? GREATER : UNORDERED;
    return (held & result) != 0;
}
