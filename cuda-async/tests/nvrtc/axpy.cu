#include "axpy.cuh"

#define AXPY(name, T)                                                                                      \
    extern "C" __global__ void name(const T *x, T *y, T a, unsigned int n)                                 \
    {                                                                                                      \
        axpy(x, y, a, n);                                                                                  \
    }

AXPY(axpy_f32, float)
AXPY(axpy_f64, double)

struct Pair
{
    float a;
    double b;
};

extern "C" __global__ void pair(Pair p, double *out)
{
    out[0] = p.a;
    out[1] = p.b;
}
