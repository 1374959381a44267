// Reductions of i16.

#define ELEMENT i16

#include "scalar.cuh"
#include "arithmetic.cuh"
#include "packs.cuh"
#include "fold.cuh"
#include "reduce.cuh"
