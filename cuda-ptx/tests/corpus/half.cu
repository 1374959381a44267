// Half precision, bfloat16, double, the maths library.
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void halves(__half *x, __half2 *y, float *f) {
    int i = threadIdx.x;
    x[i] = __hfma(x[i], x[i + 1], __float2half(0.5f));
    y[i] = __hmul2(y[i], __hadd2(y[i + 1], __floats2half2_rn(f[0], f[1])));
    f[i] = __half2float(x[i]) + (__hgt(x[i], x[i + 1]) ? 1.0f : 0.0f) + __low2float(y[i]);
    x[i + 2] = hexp(x[i]);
}

extern "C" __global__ void brains(__nv_bfloat16 *x, __nv_bfloat162 *y, float *f) {
    int i = threadIdx.x;
    x[i] = __float2bfloat16(f[i] * __bfloat162float(x[i]));
    y[i] = __hfma2(y[i], y[i + 1], y[i + 2]);
}

extern "C" __global__ void maths(float *f, double *d) {
    int i = threadIdx.x;
    f[i] = expf(f[i]) + __expf(f[i]) + sqrtf(f[i]) + rsqrtf(f[i]) + powf(f[i], 1.5f) + fmodf(f[i], 3.0f);
    f[i] += tanhf(f[i]) + __sinf(f[i]) + fminf(f[i], 2.0f) + truncf(f[i]) + __fdividef(f[i], 3.0f);
    d[i] = sqrt(d[i]) / d[i + 1] + fma(d[i], d[i], 0.1) + floor(d[i]) + copysign(d[i], -1.0);
    d[i] += (double)(long long)d[i] + __double2int_rz(d[i]) + __ddiv_ru(d[i], 7.0);
}
