// Conversions to bf16.

#define ELEMENT bf16
#define FLOAT
#define HALF

#include "scalar.cuh"
#include "cast.cuh"
