// Operations on two numbers, in contiguous tensors.

// y[i] = operation(x[i], number), or operation(number, x[i]) if `swapped`. The number is
// `*in_memory`, or `scalar` if that is null.
extern "C" __global__ void map_scalar(const Stored *x, const Stored *in_memory, Stored *y, u64 n, u32 operation,
                                      u32 swapped, Stored scalar)
{
    Value number = widen(in_memory ? *in_memory : scalar);
    switch (operation) {
#define OF(NUMBER, NAME)                                                                                               \
    case NUMBER:                                                                                                       \
        return each<PACKS>(x, y, n, [=](Value own) {                                                                   \
            return narrow(Wrapping<Value>::NAME(swapped ? number : own, swapped ? own : number));                             \
        });
        OPERATIONS(OF)
#undef OF
    }
}

// y[i] = operation(a[i], b[i])
extern "C" __global__ void map2(const Stored *a, const Stored *b, Stored *y, u64 n, u32 operation)
{
    switch (operation) {
#define OF(NUMBER, NAME)                                                                                               \
    case NUMBER: return each2<PACKS>(a, b, y, n, [](Value a, Value b) { return narrow(Wrapping<Value>::NAME(a, b)); });
        OPERATIONS(OF)
#undef OF
    }
}

#ifndef MATH
// y[i] = x[i], at least min and at most max
extern "C" __global__ void clamp(const Stored *x, Stored *y, u64 n, Stored min, Stored max)
{
    Value low = widen(min), high = widen(max);
    // Of two equal operands the result is the second. The limit is the first, so a zero that equals a limit keeps its sign.
    each<PACKS>(x, y, n, [=](Value x) { return narrow(Wrapping<Value>::smaller(high, Wrapping<Value>::larger(low, x))); });
}
#endif
