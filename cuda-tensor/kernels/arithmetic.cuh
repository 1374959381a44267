// Arithmetic that is defined for all operands.

// NaN takes precedence over numbers.
template <typename T> __device__ inline T larger_of(T a, T b) { return a > b || is_nan(a) ? a : b; }
template <typename T> __device__ inline T smaller_of(T a, T b) { return a < b || is_nan(a) ? a : b; }

// Integer arithmetic wraps. Division by zero gives 0, because integers have no value that means an error.
template <typename T> struct Wrapping {
    static __device__ T add(T a, T b) { return (T)((u64)a + (u64)b); }
    static __device__ T sub(T a, T b) { return (T)((u64)a - (u64)b); }
    static __device__ T mul(T a, T b) { return (T)((u64)a * (u64)b); }
    static __device__ T div(T a, T b)
    {
        if (b == 0) {
            return 0;
        }
        // The quotient of the smallest value and -1 does not fit.
        return Traits<T>::is_signed && b == (T)-1 ? sub(0, a) : (T)(a / b);
    }
    static __device__ T rem(T a, T b)
    {
        return b == 0 || (Traits<T>::is_signed && b == (T)-1) ? (T)0 : (T)(a % b);
    }
    static __device__ T power(T a, T b)
    {
        if (Traits<T>::is_signed && b < 0) {
            return a == 1 ? (T)1 : a == (T)-1 ? (b & 1 ? (T)-1 : (T)1) : (T)0;
        }
        T result = 1;
        for (u64 left = (u64)b; left != 0; left >>= 1) {
            if (left & 1) {
                result = mul(result, a);
            }
            a = mul(a, a);
        }
        return result;
    }
    static __device__ T larger(T a, T b) { return larger_of(a, b); }
    static __device__ T smaller(T a, T b) { return smaller_of(a, b); }
    static __device__ T negate(T a) { return sub(0, a); }
    static __device__ T absolute(T a) { return a < 0 ? sub(0, a) : a; }
};

#define FLOATING(T, FMOD, POW, ABS)                                                                                    \
    template <> struct Wrapping<T> {                                                                                   \
        static __device__ T add(T a, T b) { return a + b; }                                                            \
        static __device__ T sub(T a, T b) { return a - b; }                                                            \
        static __device__ T mul(T a, T b) { return a * b; }                                                            \
        static __device__ T div(T a, T b) { return a / b; }                                                            \
        static __device__ T rem(T a, T b) { return FMOD(a, b); }                                                       \
        static __device__ T power(T a, T b) { return POW(a, b); }                                                      \
        static __device__ T larger(T a, T b) { return larger_of(a, b); }                                               \
        static __device__ T smaller(T a, T b) { return smaller_of(a, b); }                                             \
        static __device__ T negate(T a) { return -a; }                                                                 \
        static __device__ T absolute(T a) { return ABS(a); }                                                           \
    };
FLOATING(float, fmodf, powf, fabsf)
FLOATING(double, fmod, pow, fabs)
