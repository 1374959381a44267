// Conversions to f16.

#define ELEMENT f16
#define FLOAT
#define HALF

#include "scalar.cuh"
#include "cast.cuh"
