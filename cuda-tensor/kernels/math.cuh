// The functions of `FloatUnary` in `tensor/operations/elementwise`.

template <typename T> struct Functions;

#define FUNCTIONS(T, S)                                                                                                \
    template <> struct Functions<T> {                                                                                  \
        static __device__ T exponential(T x) { return exp##S(x); }                                                     \
        static __device__ T logarithm(T x) { return log##S(x); }                                                       \
        static __device__ T root(T x) { return sqrt##S(x); }                                                           \
        static __device__ T sine(T x) { return sin##S(x); }                                                            \
        static __device__ T cosine(T x) { return cos##S(x); }                                                          \
        static __device__ T tangent(T x) { return tanh##S(x); }                                                        \
        static __device__ T error(T x) { return erf##S(x); }                                                           \
        static __device__ T lower(T x) { return floor##S(x); }                                                         \
        static __device__ T upper(T x) { return ceil##S(x); }                                                          \
        static __device__ T nearest(T x) { return rint##S(x); }                                                        \
        static __device__ T sigmoid(T x) { return (T)1 / ((T)1 + exp##S(-x)); }                                        \
        static __device__ T gelu(T x) { return (T)0.5 * x * ((T)1 + erf##S(x * (T)0.70710678118654752440)); }          \
        static __device__ T reciprocal(T x) { return (T)1 / x; }                                                       \
    };
FUNCTIONS(float, f)
FUNCTIONS(double, )

// The number of packs that a thread of `map_float` loads before it computes. f16 and bf16 need more loads in flight than in
// `operations.cuh`, because these functions have more instructions. `map_float` in `tensor/operations/elementwise` has the same
// numbers.
#ifdef HALF
#define FLOAT_PACKS 4
#else
#define FLOAT_PACKS 1
#endif

// y[i] = operation(x[i])
extern "C" __global__ void map_float(const Stored *x, Stored *y, u64 n, u32 operation)
{
    typedef Functions<Value> F;
    switch (operation) {
#define IN_PACKS(NUMBER, NAME)                                                                                         \
    case NUMBER: return each<FLOAT_PACKS>(x, y, n, [](Value x) { return narrow(F::NAME(x)); });
// Functions with much code are not inlined once for each lane of a pack.
#define ONE_BY_ONE(NUMBER, NAME)                                                                                       \
    case NUMBER:                                                                                                       \
        for (u64 i = first(); i < n; i += threads()) {                                                                 \
            y[i] = narrow(F::NAME(widen(x[i])));                                                                       \
        }                                                                                                              \
        return;
        IN_PACKS(0, exponential)
        ONE_BY_ONE(1, logarithm)
        IN_PACKS(2, root)
        ONE_BY_ONE(3, sine)
        ONE_BY_ONE(4, cosine)
        ONE_BY_ONE(5, tangent)
        ONE_BY_ONE(6, error)
        IN_PACKS(7, lower)
        IN_PACKS(8, upper)
        IN_PACKS(9, nearest)
        IN_PACKS(10, sigmoid)
        ONE_BY_ONE(11, gelu)
        IN_PACKS(12, reciprocal)
    }
}
