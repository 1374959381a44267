// Elementwise operations in packs of 16 bytes, if all operands are aligned to 16 bytes.

template <typename T, int N> struct alignas(sizeof(T) * N) Pack { T lanes[N]; };

#define LANES (16 / sizeof(Stored))

__device__ inline bool aligned(const void *x) { return (u64)x % 16 == 0; }

// y[i] = f(x[i])
template <typename F> __device__ inline void each(const Stored *x, Stored *y, u64 n, F f)
{
    typedef Pack<Stored, LANES> P;
    u64 packs = aligned(x) && aligned(y) ? n / LANES : 0;
    for (u64 i = first(); i < packs; i += threads()) {
        P own = ((const P *)x)[i], result;
#pragma unroll
        for (int lane = 0; lane < LANES; lane++) {
            result.lanes[lane] = narrow(f(widen(own.lanes[lane])));
        }
        ((P *)y)[i] = result;
    }
    for (u64 i = packs * LANES + first(); i < n; i += threads()) {
        y[i] = narrow(f(widen(x[i])));
    }
}

// y[i] = f(a[i], b[i])
template <typename F> __device__ inline void each2(const Stored *a, const Stored *b, Stored *y, u64 n, F f)
{
    typedef Pack<Stored, LANES> P;
    u64 packs = aligned(a) && aligned(b) && aligned(y) ? n / LANES : 0;
    for (u64 i = first(); i < packs; i += threads()) {
        P p = ((const P *)a)[i], q = ((const P *)b)[i], result;
#pragma unroll
        for (int lane = 0; lane < LANES; lane++) {
            result.lanes[lane] = narrow(f(widen(p.lanes[lane]), widen(q.lanes[lane])));
        }
        ((P *)y)[i] = result;
    }
    for (u64 i = packs * LANES + first(); i < n; i += threads()) {
        y[i] = narrow(f(widen(a[i]), widen(b[i])));
    }
}

// Loads and stores a pack, element by element unless the address is aligned. The elements of a thread are the same in both.
template <int WIDTH> __device__ inline Pack<Stored, WIDTH> load_pack(const Stored *from, bool is_aligned)
{
    if (is_aligned) {
        return *(const Pack<Stored, WIDTH> *)from;
    }
    Pack<Stored, WIDTH> pack;
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
