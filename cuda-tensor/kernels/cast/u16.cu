// Conversions to u16.

#define ELEMENT u16
#define UNSIGNED

#include "scalar.cuh"
#include "cast.cuh"
