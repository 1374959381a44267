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

template <typename T> __device__ inline bool holds(u32 operation, T a, T b)
{
    switch (operation) {
    case 0: return a == b;
    case 1: return a != b;
    case 2: return a < b;
    case 3: return a <= b;
    case 4: return a > b;
    default: return a >= b;
    }
}

// y[i] = comparison(a[i], b[i])
extern "C" __global__ void compare(const Stored *a, const Stored *b, u8 *y, u64 n, u32 operation)
{
    for (u64 i = first(); i < n; i += threads()) {
        y[i] = holds<Value>(operation, widen(a[i]), widen(b[i]));
    }
}

// y[i] = comparison(x[i], number), or comparison(number, x[i]) if `swapped`. The number is `*in_memory`, or else `scalar`.
extern "C" __global__ void compare_scalar(const Stored *x, const Stored *in_memory, u8 *y, u64 n, u32 operation,
                                          u32 swapped, Stored scalar)
{
    Value number = widen(in_memory ? *in_memory : scalar);
    for (u64 i = first(); i < n; i += threads()) {
        Value own = widen(x[i]);
        y[i] = holds<Value>(operation, swapped ? number : own, swapped ? own : number);
    }
}

// y[i] = comparison(a[i], b[i]) with operands that are strided or broadcast
extern "C" __global__ void compare_strided(const Stored *a, const Stored *b, u8 *y, StridedIndex<2> walk, u32 operation)
{
    for (u64 i = first(); i < walk.n; i += threads()) {
        u64 at[2];
        walk.at(i, at);
        y[i] = holds<Value>(operation, widen(a[at[0]]), widen(b[at[1]]));
    }
}

// y[i] = mask[i] ? a[i] : b[i]
extern "C" __global__ void choose(const u8 *mask, const Stored *a, const Stored *b, Stored *y, StridedIndex<3> walk)
{
    for (u64 i = first(); i < walk.n; i += threads()) {
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
