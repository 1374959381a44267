// Conversions to i8.

#define ELEMENT i8

#include "scalar.cuh"
#include "cast.cuh"
