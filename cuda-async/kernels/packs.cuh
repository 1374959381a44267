// Elementwise work in packs of 16 bytes, where all operands are aligned to them.

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
