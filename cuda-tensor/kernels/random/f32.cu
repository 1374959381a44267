// Random numbers of type f32.

#define ELEMENT f32
#define FLOAT
#define WORDS 1
#define DIGITS 24

#include "scalar.cuh"
#include "random.cuh"
