// Conversions to u8.

#define ELEMENT u8
#define UNSIGNED

#include "scalar.cuh"
#include "cast.cuh"
