// Elementwise operations in packs, with operands that are strided or broadcast.

// The number of packs that a thread loads before it computes: `STRIDED_PACKS` and `STRIDED_POWERS_PACKS` in
// `tensor/element/kernels`. The code of remainders and powers of floats is long.
#ifdef MATH
#define STRIDED_PACKS 1
#else
#define STRIDED_PACKS 2
#endif

// y[i] = of_element(a[..], b[..]), for operands that are strided or broadcast. If every row has whole packs,
// `of_pack` computes most packs of y, and `of_element` the other elements.
template <int COUNT, typename R, typename P, typename E>
__device__ inline void each_strided(const Stored *a, const Stored *b, R *y, const StridedIndex<2> &walk, P of_pack,
                                    E of_element)
{
    bool has_packs = walk.has_packs(LANES) && (u64)y % sizeof(Pack<R, LANES>) == 0;
    u64 packs = has_packs ? walk.n / LANES : 0;
    uint4 from_a[COUNT], from_b[COUNT];
    packs = each_pack<COUNT>(
        packs,
        [&](int k, u64 i) {
            u64 at[2];
            walk.at(i * LANES, at);
            from_a[k] = load_lanes<LANES>(a + at[0], walk.step(0));
            from_b[k] = load_lanes<LANES>(b + at[1], walk.step(1));
        },
        [&](int k, u64 i) { ((Pack<R, LANES> *)y)[i] = of_pack(pack_of<Stored, LANES>(from_a[k]), pack_of<Stored, LANES>(from_b[k])); });
    for (u64 i = packs * LANES + first(); i < walk.n; i += threads()) {
        u64 at[2];
        walk.at(i, at);
        y[i] = of_element(a[at[0]], b[at[1]]);
    }
}
