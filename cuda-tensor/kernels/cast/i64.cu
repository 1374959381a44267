// Conversions to i64.

#define ELEMENT i64

#include "scalar.cuh"
#include "cast.cuh"
