// Elementwise operations on bool.

#define ELEMENT bool
#define UNSIGNED
#define BOOLEAN

#include "scalar.cuh"
#include "arithmetic.cuh"
#include "packs.cuh"
#include "comparison.cuh"
#include "elementwise.cuh"
