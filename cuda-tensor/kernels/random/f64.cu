// Random numbers of type f64.

#define ELEMENT f64
#define FLOAT
#define WORDS 2

#include "scalar.cuh"
#include "random.cuh"
