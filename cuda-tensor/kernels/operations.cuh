// The operations of `Binary` in `tensor/operations/elementwise`. The float operations with much code are in other modules (MATH).
#if defined(FLOAT) && defined(MATH)
#define OPERATIONS(OF) OF(4, rem) OF(7, power)
#elif defined(FLOAT)
#define OPERATIONS(OF) OF(0, add) OF(1, sub) OF(2, mul) OF(3, div) OF(5, larger) OF(6, smaller)
#else
#define OPERATIONS(OF)                                                                                                 \
    OF(0, add) OF(1, sub) OF(2, mul) OF(3, div) OF(4, rem) OF(5, larger) OF(6, smaller) OF(7, power)
#endif

// The number of packs that a thread loads before it computes. f16 and bf16 are converted to float and back, so they need more
// instructions for each byte and more loads in flight. `Binary::packs` in `tensor/operations/elementwise` has the same numbers.
#if defined(HALF) && !defined(MATH)
#define PACKS 2
#else
#define PACKS 1
#endif
