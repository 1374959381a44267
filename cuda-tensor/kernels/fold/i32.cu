// Reductions of i32.

#define ELEMENT i32

#include "scalar.cuh"
#include "arithmetic.cuh"
#include "packs.cuh"
#include "fold.cuh"
#include "reduce.cuh"
