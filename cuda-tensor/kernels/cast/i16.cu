// Conversions to i16.

#define ELEMENT i16

#include "scalar.cuh"
#include "cast.cuh"
