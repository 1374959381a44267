// Softmax of bf16.

#define ELEMENT bf16
#define FLOAT
#define HALF

#include "scalar.cuh"
#include "arithmetic.cuh"
#include "packs.cuh"
#include "fold.cuh"
#include "softmax.cuh"
