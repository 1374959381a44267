// Elementwise operations. Their numbers are the discriminants of `Unary` and `Comparison` in `tensor/elementwise`.

#ifndef UNSIGNED
// y[i] = operation(x[i])
extern "C" __global__ void map(const Stored *x, Stored *y, u64 n, u32 operation)
{
    switch (operation) {
    case 0: return each<1>(x, y, n, [](Value x) { return Wrapping<Value>::negate(x); });
    case 1: return each<1>(x, y, n, [](Value x) { return Wrapping<Value>::absolute(x); });
    case 2: return each<1>(x, y, n, [](Value x) { return x < (Value)0 ? (Value)0 : x; });
    }
}
#endif

// The results of comparing two elements for which a comparison holds, as bits.
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

// y[i] = comparison(a[i], b[i]) with operands that may be strided or broadcast
extern "C" __global__ void compare(const Stored *a, const Stored *b, u8 *y, StridedIndex<2> walk, u32 operation)
{
    u32 held = held_by(operation);
    auto of_element = [=](Value a, Value b) { return holds(held, a, b); };
    each_strided<1>(
        a, b, y, walk, [=](Pack<Stored, LANES> a, Pack<Stored, LANES> b) { return combined<u8>(a, b, of_element); },
        [=](Stored a, Stored b) { return of_element(widen(a), widen(b)); });
}

// y[i] = comparison(x[i], number), or comparison(number, x[i]) if `swapped`. The number is `*in_memory`, or else `scalar`.
extern "C" __global__ void compare_scalar(const Stored *x, const Stored *in_memory, u8 *y, u64 n, u32 operation,
                                          u32 swapped, Stored scalar)
{
    Value number = widen(in_memory ? *in_memory : scalar);
    u32 held = held_by(operation);
    auto of_element = [=](Value own) { return holds(held, swapped ? number : own, swapped ? own : number); };
    typedef Pack<u8, LANES> Results;
    u64 packs = aligned(x) && (u64)y % sizeof(Results) == 0 ? n / LANES : 0;
    Pack<Stored, LANES> own;
    packs = each_pack<1>(
        packs, [&](int, u64 i) { own = load_lanes(x + i * LANES, 1); },
        [&](int, u64 i) { ((Results *)y)[i] = combined<u8>(own, own, [=](Value own, Value) { return of_element(own); }); });
    for (u64 i = packs * LANES + first(); i < n; i += threads()) {
        y[i] = of_element(widen(x[i]));
    }
}

// y[i] = mask[i] ? a[i] : b[i]
extern "C" __global__ void choose(const u8 *mask, const Stored *a, const Stored *b, Stored *y, StridedIndex<3> walk)
{
    u64 packs = walk.has_packs(LANES) && aligned(y) ? walk.n / LANES : 0;
    Pack<u8, LANES> choice;
    Pack<Stored, LANES> from_a, from_b;
    packs = each_pack<1>(
        packs,
        [&](int, u64 i) {
            u64 at[3];
            walk.at(i * LANES, at);
            choice = load_lanes(mask + at[0], walk.step(0));
            from_a = load_lanes(a + at[1], walk.step(1));
            from_b = load_lanes(b + at[2], walk.step(2));
        },
        [&](int, u64 i) {
#pragma unroll
            for (int lane = 0; lane < LANES; lane++) {
                from_b.lanes[lane] = choice.lanes[lane] != 0 ? from_a.lanes[lane] : from_b.lanes[lane];
            }
            ((Pack<Stored, LANES> *)y)[i] = from_b;
        });
    for (u64 i = packs * LANES + first(); i < walk.n; i += threads()) {
        u64 at[3];
        walk.at(i, at);
        y[i] = mask[at[0]] != 0 ? a[at[1]] : b[at[2]];
    }
}

// y[i] = value
extern "C" __global__ void fill(Stored *y, u64 n, Stored value)
{
    for (u64 i = first(); i < n; i += threads()) {
        y[i] = value;
    }
}

// y[i] = start + i * step
extern "C" __global__ void arange(Stored *y, u64 n, Stored start, Stored step)
{
    for (u64 i = first(); i < n; i += threads()) {
        y[i] = narrow(Wrapping<Value>::add(widen(start), Wrapping<Value>::mul((Value)i, widen(step))));
    }
}
