// Reductions of u64.

#define ELEMENT u64
#define UNSIGNED

#include "scalar.cuh"
#include "arithmetic.cuh"
#include "packs.cuh"
#include "fold.cuh"
#include "reduce.cuh"
