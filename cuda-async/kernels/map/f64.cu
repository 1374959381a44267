// Elementwise operations on f64.

#define ELEMENT f64
#define FLOAT

#include "scalar.cuh"
#include "strided_index.cuh"
#include "arithmetic.cuh"
#include "packs.cuh"
#include "strided_packs.cuh"
#include "elementwise.cuh"
#include "binary.cuh"
