// Matrix products of f16.

#define ELEMENT f16

#include "scalar.cuh"
#include "matmul.cuh"
