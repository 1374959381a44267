// Conversions as by Rust's `as`. To floats: rounded to the nearest. Floats to integers: truncated and saturated, and
// NaN gives 0. Integers to integers: wrapped.
template <typename To, typename From> __device__ inline To convert(From x)
{
    if (Traits<From>::is_float && !Traits<To>::is_float) {
        if (is_nan(x)) {
            return 0;
        }
        // The largest integer may be rounded up to a power of two that no longer fits.
        if (x >= (From)Traits<To>::highest()) {
            return Traits<To>::highest();
        }
        return x <= (From)Traits<To>::lowest() ? Traits<To>::lowest() : (To)x;
    }
    return (To)x;
}

// Converts to float with rounding to odd: an inexact result gets an odd last bit. Rounding it to fewer bits then gives the
// same as rounding `x` directly.
#define ROUND_TO_ODD(T, TRUNCATE)                                                                                      \
    __device__ inline float round_to_odd(T x)                                                                          \
    {                                                                                                                  \
        float cut = TRUNCATE(x);                                                                                       \
        return (T)cut == x ? cut : __uint_as_float(__float_as_uint(cut) | 1);                                          \
    }
ROUND_TO_ODD(double, __double2float_rz)
ROUND_TO_ODD(i32, __int2float_rz)
ROUND_TO_ODD(u32, __uint2float_rz)
ROUND_TO_ODD(i64, __ll2float_rz)
ROUND_TO_ODD(u64, __ull2float_rz)
template <typename T> __device__ inline float round_to_odd(T x) { return (float)x; }

#if defined(HALF)
#define CONVERT(FROM) narrow(round_to_odd(widen(x[i])))
#elif defined(BOOLEAN)
#define CONVERT(FROM) narrow(widen(x[i]) != 0)
#else
#define CONVERT(FROM) narrow(convert<Value>(widen(x[i])))
#endif

// y[i] = x[i] as another type
#define CAST(FROM)                                                                                                     \
    extern "C" __global__ void cast_##FROM(const stored_##FROM *x, Stored *y, u64 n)                                   \
    {                                                                                                                  \
        for (u64 i = first(); i < n; i += threads()) {                                                                 \
            y[i] = CONVERT(FROM);                                                                                      \
        }                                                                                                              \
    }
CAST(i8) CAST(u8) CAST(i16) CAST(u16) CAST(i32) CAST(u32) CAST(i64) CAST(u64)
CAST(f16) CAST(bf16) CAST(f32) CAST(f64) CAST(bool)
