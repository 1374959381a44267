// Softmax of f64.

#define ELEMENT f64
#define FLOAT
#define DOUBLE

#include "scalar.cuh"
#include "arithmetic.cuh"
#include "packs.cuh"
#include "fold.cuh"
#include "softmax.cuh"
