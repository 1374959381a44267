// Matrix products of f32.

#define ELEMENT f32

#include "scalar.cuh"
#include "matmul.cuh"
