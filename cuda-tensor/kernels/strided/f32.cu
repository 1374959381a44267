// Elementwise operations on strided and broadcast tensors of f32.

#define ELEMENT f32
#define FLOAT

#include "scalar.cuh"
#include "strided_index.cuh"
#include "arithmetic.cuh"
#include "packs.cuh"
#include "strided_packs.cuh"
#include "comparison.cuh"
#include "strided.cuh"
#include "operations.cuh"
#include "map2_strided.cuh"
