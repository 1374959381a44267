// Elementwise operations on f64.

#define ELEMENT f64
#define FLOAT

#include "scalar.cuh"
#include "arithmetic.cuh"
#include "packs.cuh"
#include "comparison.cuh"
#include "elementwise.cuh"
#include "operations.cuh"
#include "binary.cuh"
