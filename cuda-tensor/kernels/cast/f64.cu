// Conversions to f64.

#define ELEMENT f64
#define FLOAT

#include "scalar.cuh"
#include "cast.cuh"
