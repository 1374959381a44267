// Packs of neighbouring elements, and the loops over them.

template <typename T, int N> struct alignas(sizeof(T) * N) Pack { T lanes[N]; };

// The type as which a pack of SIZE bytes is loaded. The compiler splits the load of a struct of small elements.
template <int SIZE> struct Bits;
template <> struct Bits<1> { typedef u8 Type; };
template <> struct Bits<2> { typedef u16 Type; };
template <> struct Bits<4> { typedef u32 Type; };
template <> struct Bits<8> { typedef u64 Type; };
template <> struct Bits<16> { typedef uint4 Type; };

template <typename T, int N> __device__ inline Pack<T, N> pack_of(typename Bits<sizeof(T) * N>::Type loaded)
{
    return *(const Pack<T, N> *)&loaded;
}

// Each thread calls `load(k, i)` for COUNT packs, and then `compute(k, i)` for the same packs: k is below COUNT, and i is the
// index of the pack. Returns the number of packs that the grid covers: `packs` rounded down to a multiple of
// COUNT * blockDim.x. COUNT and blockDim.x are powers of two.
template <int COUNT, typename Load, typename Compute>
__device__ inline u64 each_pack(u64 packs, Load load, Compute compute)
{
    // A block takes neighbouring packs.
    u32 length = COUNT * blockDim.x;
    u64 whole = packs & ~(u64)(length - 1);
    for (u64 i = (u64)blockIdx.x * length + threadIdx.x; i < whole; i += threads() * COUNT) {
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            load(k, i + k * blockDim.x);
        }
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            compute(k, i + k * blockDim.x);
        }
    }
    return whole;
}

// The bits of a pack of elements that are `stride` apart.
template <int N, typename T> __device__ inline typename Bits<sizeof(T) * N>::Type load_lanes(const T *from, u64 stride)
{
    typedef typename Bits<sizeof(T) * N>::Type Loaded;
    if (stride == 1 && (u64)from % sizeof(Loaded) == 0) {
        return *(const Loaded *)from;
    }
    Pack<T, N> pack;
#pragma unroll
    for (int lane = 0; lane < N; lane++) {
        pack.lanes[lane] = from[lane * stride];
    }
    return *(const Loaded *)&pack;
}

// Stores the bits of a pack of elements that are `stride` apart.
template <int N, typename T>
__device__ inline void store_lanes(T *to, u64 stride, typename Bits<sizeof(T) * N>::Type bits)
{
    typedef typename Bits<sizeof(T) * N>::Type Stored;
    if (stride == 1 && (u64)to % sizeof(Stored) == 0) {
        *(Stored *)to = bits;
        return;
    }
    Pack<T, N> pack = pack_of<T, N>(bits);
#pragma unroll
    for (int lane = 0; lane < N; lane++) {
        to[lane * stride] = pack.lanes[lane];
    }
}
