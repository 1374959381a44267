// Elementwise operations on i8.

#define ELEMENT i8

#include "scalar.cuh"
#include "strided_index.cuh"
#include "arithmetic.cuh"
#include "packs.cuh"
#include "strided_packs.cuh"
#include "elementwise.cuh"
#include "binary.cuh"
