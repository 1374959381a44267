// Reductions of bool.

#define ELEMENT bool
#define UNSIGNED
#define BOOLEAN

#include "scalar.cuh"
#include "arithmetic.cuh"
#include "packs.cuh"
#include "fold.cuh"
#include "reduce.cuh"
