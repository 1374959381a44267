// The element type of a module: how it is stored, and the type in which it is computed.
//
// A module is compiled with one of the names below as ELEMENT. `Stored` is the type in memory and `Value` the type of
// arithmetic. f16 and bf16 are computed as float and rounded once for each operation, which gives the result of IEEE
// arithmetic for + - * / and square roots.

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

struct F16 { u16 bits; };
struct BF16 { u16 bits; };
struct Bool { u8 byte; };

__device__ inline float widen(F16 x)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x.bits));
    return value;
}

__device__ inline float widen(BF16 x)
{
    return __uint_as_float((u32)x.bits << 16);
}

__device__ inline u8 widen(Bool x)
{
    return x.byte != 0;
}

template <typename T> __device__ inline T widen(T x)
{
    return x;
}

template <typename S, typename V> struct Narrow {
    static __device__ S of(V value) { return (S)value; }
};

template <typename V> struct Narrow<F16, V> {
    static __device__ F16 of(float value)
    {
        F16 x;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(x.bits) : "f"(value));
        return x;
    }
};

template <typename V> struct Narrow<BF16, V> {
    // Rounds to the nearest, ties to even. The instruction for it needs a newer GPU than the target.
    static __device__ BF16 of(float value)
    {
        u32 bits = __float_as_uint(value);
        BF16 x;
        x.bits = (bits & 0x7fffffff) > 0x7f800000 ? 0x7fff : (u16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
        return x;
    }
};

template <typename V> struct Narrow<Bool, V> {
    static __device__ Bool of(V value)
    {
        Bool x;
        x.byte = value != 0;
        return x;
    }
};

template <typename T> struct Traits;

// is_float, is_signed, the smallest and the largest value. The largest of a float is infinity.
#define INTEGER(T, SIGNED, LOWEST, HIGHEST)                                                                            \
    template <> struct Traits<T> {                                                                                     \
        static const bool is_float = false, is_signed = SIGNED;                                                        \
        static __device__ T lowest() { return LOWEST; }                                                                \
        static __device__ T highest() { return HIGHEST; }                                                              \
    };
INTEGER(i8, true, -128, 127)
INTEGER(u8, false, 0, 255)
INTEGER(i16, true, -32768, 32767)
INTEGER(u16, false, 0, 65535)
INTEGER(i32, true, (i32)0x80000000u, 0x7fffffff)
INTEGER(u32, false, 0, 0xffffffffu)
INTEGER(i64, true, (i64)0x8000000000000000ull, 0x7fffffffffffffffll)
INTEGER(u64, false, 0, 0xffffffffffffffffull)
template <> struct Traits<float> {
    static const bool is_float = true, is_signed = true;
    static __device__ float lowest() { return -__uint_as_float(0x7f800000); }
    static __device__ float highest() { return __uint_as_float(0x7f800000); }
};
template <> struct Traits<double> {
    static const bool is_float = true, is_signed = true;
    static __device__ double lowest() { return -__longlong_as_double(0x7ff0000000000000ll); }
    static __device__ double highest() { return __longlong_as_double(0x7ff0000000000000ll); }
};

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define Stored CAT(stored_, ELEMENT)
#define Value CAT(value_, ELEMENT)

typedef i8 stored_i8, value_i8;
typedef u8 stored_u8, value_u8;
typedef i16 stored_i16, value_i16;
typedef u16 stored_u16, value_u16;
typedef i32 stored_i32, value_i32;
typedef u32 stored_u32, value_u32;
typedef i64 stored_i64, value_i64;
typedef u64 stored_u64, value_u64;
typedef F16 stored_f16;
typedef float value_f16;
typedef BF16 stored_bf16;
typedef float value_bf16;
typedef float stored_f32, value_f32;
typedef double stored_f64, value_f64;
typedef Bool stored_bool;
typedef u8 value_bool;

#ifdef ELEMENT
__device__ inline Stored narrow(Value value)
{
    return Narrow<Stored, Value>::of(value);
}
#endif

// A grid-stride loop begins at `first()`, the thread's index in the grid, and advances by `threads()`, their number.
__device__ inline u64 first() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline u64 threads() { return (u64)gridDim.x * blockDim.x; }

// NaN is not equal to itself. Integers always are.
template <typename T> __device__ inline bool is_nan(T x) { return x != x; }
