// Conversions to f32.

#define ELEMENT f32
#define FLOAT

#include "scalar.cuh"
#include "cast.cuh"
