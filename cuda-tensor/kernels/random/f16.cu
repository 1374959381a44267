// Random numbers of type f16.

#define ELEMENT f16
#define FLOAT
#define HALF
#define WORDS 1
#define DIGITS 11

#include "scalar.cuh"
#include "random.cuh"
