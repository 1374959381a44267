// Conversions to i32.

#define ELEMENT i32

#include "scalar.cuh"
#include "cast.cuh"
