// Reductions of f64.

#define ELEMENT f64
#define FLOAT

#include "scalar.cuh"
#include "arithmetic.cuh"
#include "packs.cuh"
#include "fold.cuh"
#include "reduce.cuh"
