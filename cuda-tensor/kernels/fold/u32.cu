// Reductions of u32.

#define ELEMENT u32
#define UNSIGNED

#include "scalar.cuh"
#include "arithmetic.cuh"
#include "packs.cuh"
#include "fold.cuh"
#include "reduce.cuh"
