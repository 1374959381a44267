// Elementwise operations on u8.

#define ELEMENT u8
#define UNSIGNED

#include "scalar.cuh"
#include "arithmetic.cuh"
#include "packs.cuh"
#include "comparison.cuh"
#include "elementwise.cuh"
#include "operations.cuh"
#include "binary.cuh"
