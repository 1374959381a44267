// Elementwise operations on i32.

#define ELEMENT i32

#include "scalar.cuh"
#include "arithmetic.cuh"
#include "packs.cuh"
#include "comparison.cuh"
#include "elementwise.cuh"
#include "operations.cuh"
#include "binary.cuh"
