// Elementwise operations. The numbers of the operations are those of `Unary` and `Binary` in `tensor/elementwise`.

template <typename T> __device__ inline T binary(u32 operation, T a, T b)
{
    typedef Wrapping<T> W;
    switch (operation) {
    case 0: return W::add(a, b);
    case 1: return W::sub(a, b);
    case 2: return W::mul(a, b);
    case 3: return W::div(a, b);
    case 4: return W::rem(a, b);
    case 5: return larger(a, b);
    case 6: return smaller(a, b);
    default: return W::power(a, b);
    }
}

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

#ifdef FLOAT
template <typename T> struct Functions;

#define FUNCTIONS(T, S)                                                                                                \
    template <> struct Functions<T> {                                                                                  \
        static __device__ T apply(u32 operation, T x)                                                                  \
        {                                                                                                              \
            switch (operation) {                                                                                       \
            case 3: return exp##S(x);                                                                                  \
            case 4: return log##S(x);                                                                                  \
            case 5: return sqrt##S(x);                                                                                 \
            case 6: return sin##S(x);                                                                                  \
            case 7: return cos##S(x);                                                                                  \
            case 8: return tanh##S(x);                                                                                 \
            case 9: return erf##S(x);                                                                                  \
            case 10: return floor##S(x);                                                                               \
            case 11: return ceil##S(x);                                                                                \
            case 12: return rint##S(x);                                                                                \
            case 13: return (T)1 / ((T)1 + exp##S(-x));                                                                \
            case 14: return (T)0.5 * x * ((T)1 + erf##S(x * (T)0.70710678118654752440));                               \
            default: return (T)1 / x;                                                                                  \
            }                                                                                                          \
        }                                                                                                              \
    };
FUNCTIONS(float, f)
FUNCTIONS(double, )
#endif

#ifndef UNSIGNED
template <typename T> __device__ inline T unary(u32 operation, T x)
{
    typedef Wrapping<T> W;
    switch (operation) {
    case 0: return W::negate(x);
    case 1: return W::absolute(x);
    case 2: return x < (T)0 ? (T)0 : x;
#ifdef FLOAT
    default: return Functions<T>::apply(operation, x);
#else
    default: return x;
#endif
    }
}

// y[i] = operation(x[i])
extern "C" __global__ void map(const Stored *x, Stored *y, u64 n, u32 operation)
{
    for (u64 i = first(); i < n; i += threads()) {
        y[i] = narrow(unary<Value>(operation, widen(x[i])));
    }
}

#endif

// y[i] = operation(x[i], scalar), or operation(scalar, x[i]) if `swapped`
extern "C" __global__ void map_scalar(const Stored *x, Stored *y, u64 n, u32 operation, u32 swapped, Stored scalar)
{
    Value other = widen(scalar);
    for (u64 i = first(); i < n; i += threads()) {
        Value own = widen(x[i]);
        y[i] = narrow(swapped ? binary<Value>(operation, other, own) : binary<Value>(operation, own, other));
    }
}

// y[i] = operation(a[i], b[i])
extern "C" __global__ void map2(const Stored *a, const Stored *b, Stored *y, u64 n, u32 operation)
{
    for (u64 i = first(); i < n; i += threads()) {
        y[i] = narrow(binary<Value>(operation, widen(a[i]), widen(b[i])));
    }
}

// The same with operands that are strided or repeated.
extern "C" __global__ void map2_strided(const Stored *a, const Stored *b, Stored *y, Walk<2> walk, u32 operation)
{
    for (u64 i = first(); i < walk.n; i += threads()) {
        u64 at[2];
        walk.at(i, at);
        y[i] = narrow(binary<Value>(operation, widen(a[at[0]]), widen(b[at[1]])));
    }
}

// y[i] = whether a[i] and b[i] compare so
extern "C" __global__ void compare(const Stored *a, const Stored *b, u8 *y, u64 n, u32 operation)
{
    for (u64 i = first(); i < n; i += threads()) {
        y[i] = holds<Value>(operation, widen(a[i]), widen(b[i]));
    }
}

extern "C" __global__ void compare_strided(const Stored *a, const Stored *b, u8 *y, Walk<2> walk, u32 operation)
{
    for (u64 i = first(); i < walk.n; i += threads()) {
        u64 at[2];
        walk.at(i, at);
        y[i] = holds<Value>(operation, widen(a[at[0]]), widen(b[at[1]]));
    }
}

// y[i] = mask[i] ? a[i] : b[i]
extern "C" __global__ void choose(const u8 *mask, const Stored *a, const Stored *b, Stored *y, Walk<3> walk)
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
    typedef Wrapping<Value> W;
    for (u64 i = first(); i < n; i += threads()) {
        y[i] = narrow(W::add(widen(start), W::mul((Value)i, widen(step))));
    }
}
