// Conversions to u32.

#define ELEMENT u32
#define UNSIGNED

#include "scalar.cuh"
#include "cast.cuh"
