// Elementwise operations of contiguous tensors. The numbers of `map` are those of `Unary` in `tensor/operations/elementwise`.

#ifndef UNSIGNED
// y[i] = operation(x[i])
extern "C" __global__ void map(const Stored *x, Stored *y, u64 n, u32 operation)
{
    switch (operation) {
    case 0: return each<1>(x, y, n, [](Value x) { return narrow(Wrapping<Value>::negate(x)); });
    case 1: return each<1>(x, y, n, [](Value x) { return narrow(Wrapping<Value>::absolute(x)); });
    case 2: return each<1>(x, y, n, [](Value x) { return narrow(x < (Value)0 ? (Value)0 : x); });
    }
}
#endif

// y[i] = comparison(a[i], b[i])
extern "C" __global__ void compare(const Stored *a, const Stored *b, u8 *y, u64 n, u32 operation)
{
    u32 held = held_by(operation);
    each2<COMPARE_PACKS>(a, b, y, n, [=](Value a, Value b) { return holds(held, a, b); });
}

// y[i] = comparison(x[i], number), or comparison(number, x[i]) if `swapped`. The number is
// `*in_memory`, or `scalar` if that is null.
extern "C" __global__ void compare_scalar(const Stored *x, const Stored *in_memory, u8 *y, u64 n, u32 operation,
                                          u32 swapped, Stored scalar)
{
    Value number = widen(in_memory ? *in_memory : scalar);
    u32 held = held_by(operation);
    each<COMPARE_PACKS>(x, y, n, [=](Value own) { return holds(held, swapped ? number : own, swapped ? own : number); });
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
