// Reductions of f16.

#define ELEMENT f16
#define FLOAT
#define HALF

#include "scalar.cuh"
#include "arithmetic.cuh"
#include "packs.cuh"
#include "fold.cuh"
#include "reduce.cuh"
