// Conversions to bool.

#define ELEMENT bool
#define UNSIGNED
#define BOOLEAN

#include "scalar.cuh"
#include "cast.cuh"
