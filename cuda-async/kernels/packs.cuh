// Elementwise operations in packs, if the addresses are aligned to packs. A pack of the operands has 16 bytes, and a pack of the
// results has as many elements.

template <typename T, int N> struct alignas(sizeof(T) * N) Pack { T lanes[N]; };

#define LANES (16 / sizeof(Stored))

__device__ inline bool aligned(const void *x) { return (u64)x % 16 == 0; }

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
