// Elementwise operations on i16.

#define ELEMENT i16

#include "scalar.cuh"
#include "walk.cuh"
#include "arithmetic.cuh"
#include "packs.cuh"
#include "elementwise.cuh"
#include "binary.cuh"
