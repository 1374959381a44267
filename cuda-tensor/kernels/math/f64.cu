// Elementwise functions of f64.

#define ELEMENT f64
#define FLOAT
#define MATH

#include "scalar.cuh"
#include "strided_index.cuh"
#include "arithmetic.cuh"
#include "packs.cuh"
#include "strided_packs.cuh"
#include "operations.cuh"
#include "binary.cuh"
#include "map2_strided.cuh"
#include "math.cuh"
