// Elementwise functions of f32.

#define ELEMENT f32
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
