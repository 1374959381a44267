// Elementwise operations on f16.

#define ELEMENT f16
#define FLOAT
#define HALF

#include "scalar.cuh"
#include "arithmetic.cuh"
#include "packs.cuh"
#include "comparison.cuh"
#include "elementwise.cuh"
#include "operations.cuh"
#include "binary.cuh"
