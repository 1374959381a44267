// Elementwise operations on u64.

#define ELEMENT u64
#define UNSIGNED

#include "scalar.cuh"
#include "strided_index.cuh"
#include "arithmetic.cuh"
#include "packs.cuh"
#include "strided_packs.cuh"
#include "elementwise.cuh"
#include "binary.cuh"
