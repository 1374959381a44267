// Elementwise operations on f32.

#define ELEMENT f32
#define FLOAT

#include "scalar.cuh"
#include "arithmetic.cuh"
#include "packs.cuh"
#include "comparison.cuh"
#include "elementwise.cuh"
#include "operations.cuh"
#include "binary.cuh"
