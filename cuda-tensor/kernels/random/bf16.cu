// Random numbers of type bf16.

#define ELEMENT bf16
#define FLOAT
#define HALF
#define WORDS 1
#define DIGITS 8

#include "scalar.cuh"
#include "random.cuh"
