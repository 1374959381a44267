// Comparisons and selections, in tensors that are strided or broadcast.

// The number of packs that a thread loads before it computes: `CHOOSE_PACKS` in `tensor/operations/elementwise`.
#define CHOOSE_PACKS 4

// y[i] = comparison(a[i], b[i]) with operands that are strided or broadcast
extern "C" __global__ void compare_strided(const Stored *a, const Stored *b, u8 *y, StridedIndex<2> walk, u32 operation)
{
    u32 held = held_by(operation);
    auto of_element = [=](Value a, Value b) { return holds(held, a, b); };
    each_strided<STRIDED_PACKS>(
        a, b, y, walk, [=](Pack<Stored, LANES> a, Pack<Stored, LANES> b) { return combined<u8>(a, b, of_element); },
        [=](Stored a, Stored b) { return of_element(widen(a), widen(b)); });
}

// y[i] = mask[i] ? a[i] : b[i]
extern "C" __global__ void choose(const u8 *mask, const Stored *a, const Stored *b, Stored *y, StridedIndex<3> walk)
{
    u64 packs = walk.has_packs(LANES) && aligned(y) ? walk.n / LANES : 0;
    Bits<LANES>::Type choices[CHOOSE_PACKS];
    uint4 from_a[CHOOSE_PACKS], from_b[CHOOSE_PACKS];
    packs = each_pack<CHOOSE_PACKS>(
        packs,
        [&](int k, u64 i) {
            u64 at[3];
            walk.at(i * LANES, at);
            choices[k] = load_lanes<LANES>(mask + at[0], walk.step(0));
            from_a[k] = load_lanes<LANES>(a + at[1], walk.step(1));
            from_b[k] = load_lanes<LANES>(b + at[2], walk.step(2));
        },
        [&](int k, u64 i) {
            Pack<u8, LANES> choice = pack_of<u8, LANES>(choices[k]);
            Pack<Stored, LANES> p = pack_of<Stored, LANES>(from_a[k]), q = pack_of<Stored, LANES>(from_b[k]), result;
#pragma unroll
            for (int lane = 0; lane < LANES; lane++) {
                result.lanes[lane] = choice.lanes[lane] != 0 ? p.lanes[lane] : q.lanes[lane];
            }
            ((Pack<Stored, LANES> *)y)[i] = result;
        });
    for (u64 i = packs * LANES + first(); i < walk.n; i += threads()) {
        u64 at[3];
        walk.at(i, at);
        y[i] = mask[at[0]] != 0 ? a[at[1]] : b[at[2]];
    }
}
