// Conversions to u64.

#define ELEMENT u64
#define UNSIGNED

#include "scalar.cuh"
#include "cast.cuh"
