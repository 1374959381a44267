// Elementwise operations on strided and broadcast tensors of f16.

#define ELEMENT f16
#define FLOAT
#define HALF

#include "scalar.cuh"
#include "strided_index.cuh"
#include "arithmetic.cuh"
#include "packs.cuh"
#include "strided_packs.cuh"
#include "comparison.cuh"
#include "strided.cuh"
#include "operations.cuh"
#include "map2_strided.cuh"
