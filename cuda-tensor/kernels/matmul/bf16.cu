// Matrix products of bf16.

#define ELEMENT bf16

#include "scalar.cuh"
#include "matmul.cuh"
