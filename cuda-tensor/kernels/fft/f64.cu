// Fourier transforms of f64.

#define ELEMENT f64

#include "scalar.cuh"
#include "fft.cuh"
