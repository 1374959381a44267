// Matrix products of f64.

#define ELEMENT f64

#include "scalar.cuh"
#include "matmul.cuh"
