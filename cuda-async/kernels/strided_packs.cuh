// Elementwise operations in packs, with operands that are strided or broadcast.

// LANES elements, `stride` apart.
template <typename T> __device__ inline Pack<T, LANES> load_lanes(const T *from, u64 stride)
{
    if (stride == 1 && (u64)from % sizeof(Pack<T, LANES>) == 0) {
        return pack_of<T, LANES>(*(const typename Bits<sizeof(T) * LANES>::Type *)from);
    }
    Pack<T, LANES> pack;
#pragma unroll
    for (int lane = 0; lane < LANES; lane++) {
        pack.lanes[lane] = from[lane * stride];
    }
    return pack;
}

// y[i] = of_element(a[..], b[..]), for operands that are strided or broadcast. Where all elements of a pack of y are in one row,
// `of_pack` computes them together.
template <int COUNT, typename R, typename P, typename E>
__device__ inline void each_strided(const Stored *a, const Stored *b, R *y, const StridedIndex<2> &walk, P of_pack,
                                    E of_element)
{
    bool has_packs = walk.has_packs(LANES) && (u64)y % sizeof(Pack<R, LANES>) == 0;
    u64 packs = has_packs ? walk.n / LANES : 0;
    Pack<Stored, LANES> from_a[COUNT], from_b[COUNT];
    packs = each_pack<COUNT>(
        packs,
        [&](int k, u64 i) {
            u64 at[2];
            walk.at(i * LANES, at);
            from_a[k] = load_lanes(a + at[0], walk.step(0));
            from_b[k] = load_lanes(b + at[1], walk.step(1));
        },
        [&](int k, u64 i) { ((Pack<R, LANES> *)y)[i] = of_pack(from_a[k], from_b[k]); });
    for (u64 i = packs * LANES + first(); i < walk.n; i += threads()) {
        u64 at[2];
        walk.at(i, at);
        y[i] = of_element(a[at[0]], b[at[1]]);
    }
}
