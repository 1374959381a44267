// Elementwise operations on bool.

#define ELEMENT bool
#define UNSIGNED
#define BOOLEAN

#include "scalar.cuh"
#include "strided_index.cuh"
#include "arithmetic.cuh"
#include "packs.cuh"
#include "strided_packs.cuh"
#include "elementwise.cuh"
