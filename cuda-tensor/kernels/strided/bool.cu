// Elementwise operations on strided and broadcast tensors of bool.

#define ELEMENT bool
#define UNSIGNED
#define BOOLEAN

#include "scalar.cuh"
#include "strided_index.cuh"
#include "arithmetic.cuh"
#include "packs.cuh"
#include "strided_packs.cuh"
#include "comparison.cuh"
#include "strided.cuh"
