// The operations of `Binary` in `tensor/elementwise`. The float operations with much code are in other modules (MATH).
#if defined(FLOAT) && defined(MATH)
#define OPERATIONS(OF) OF(4, rem) OF(7, power)
#elif defined(FLOAT)
#define OPERATIONS(OF) OF(0, add) OF(1, sub) OF(2, mul) OF(3, div) OF(5, larger) OF(6, smaller)
#else
#define OPERATIONS(OF)                                                                                                 \
    OF(0, add) OF(1, sub) OF(2, mul) OF(3, div) OF(4, rem) OF(5, larger) OF(6, smaller) OF(7, power)
#endif

// The number of packs that a thread loads before it computes. f16 and bf16 are converted to float and back, so they need more
// instructions for each byte and more loads in flight. `Binary::packs` in `tensor/elementwise` has the same numbers.
#if defined(HALF) && !defined(MATH)
#define PACKS 2
#else
#define PACKS 1
#endif

// y[i] = operation(x[i], number), or operation(number, x[i]) if `swapped`. The number is `*in_memory`, or else `scalar`.
extern "C" __global__ void map_scalar(const Stored *x, const Stored *in_memory, Stored *y, u64 n, u32 operation,
                                      u32 swapped, Stored scalar)
{
    Value number = widen(in_memory ? *in_memory : scalar);
    switch (operation) {
#define OF(NUMBER, NAME)                                                                                               \
    case NUMBER:                                                                                                       \
        return each<PACKS>(x, y, n, [=](Value own) {                                                                   \
            return Wrapping<Value>::NAME(swapped ? number : own, swapped ? own : number);                              \
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
    case NUMBER: return each2<PACKS>(a, b, y, n, [](Value a, Value b) { return Wrapping<Value>::NAME(a, b); });
        OPERATIONS(OF)
#undef OF
    }
}

// y[i] = operation(a[i], b[i]) with operands that are strided or broadcast
extern "C" __global__ void map2_strided(const Stored *a, const Stored *b, Stored *y, StridedIndex<2> walk, u32 operation)
{
#define OF(NUMBER, NAME)                                                                                               \
    case NUMBER: return combined<Stored>(a, b, [](Value a, Value b) { return narrow(Wrapping<Value>::NAME(a, b)); });
    auto of_pack = [=](Pack<Stored, LANES> a, Pack<Stored, LANES> b) {
        switch (operation) { OPERATIONS(OF) }
        return a;
    };
#undef OF
#define OF(NUMBER, NAME)                                                                                               \
    case NUMBER: return narrow(Wrapping<Value>::NAME(widen(a), widen(b)));
    auto of_element = [=](Stored a, Stored b) {
        switch (operation) { OPERATIONS(OF) }
        return a;
    };
#undef OF
    each_strided<PACKS>(a, b, y, walk, of_pack, of_element);
}

#ifndef MATH
// y[i] = x[i], at least min and at most max
extern "C" __global__ void clamp(const Stored *x, Stored *y, u64 n, Stored min, Stored max)
{
    Value low = widen(min), high = widen(max);
    each<PACKS>(x, y, n, [=](Value x) { return Wrapping<Value>::smaller(Wrapping<Value>::larger(x, low), high); });
}
#endif
