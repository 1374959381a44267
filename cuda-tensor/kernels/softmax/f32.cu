// Softmax of f32.

#define ELEMENT f32
#define FLOAT

#include "scalar.cuh"
#include "arithmetic.cuh"
#include "packs.cuh"
#include "fold.cuh"
#include "softmax.cuh"
