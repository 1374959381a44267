// One pass of a discrete Fourier transform of `n` complex numbers, in Stockham's form: it needs no reordering of the
// elements, and works for each factor of n. See Van Loan, "Computational Frameworks for the Fast Fourier Transform", 1.7.
//
// `done` is the product of the factors of the earlier passes. A thread computes one element:
//     y[(j / done) * done * factor + j % done + q * done] =
//         scale * sum of x[j + p * n / factor] * exp(+-2 pi i p (j % done + q * done) / (done * factor)) over p

struct Complex {
    Value re, im;
};

__device__ inline void sine_cosine_of_pi(float x, float *sine, float *cosine) { sincospif(x, sine, cosine); }
__device__ inline void sine_cosine_of_pi(double x, double *sine, double *cosine) { sincospi(x, sine, cosine); }

// `direction` is -1 for the transform and 1 for its inverse.
extern "C" __global__ void fft_pass(const Complex *x, Complex *y, u64 batch, u64 n, u64 done, u64 factor, Value direction, Value scale)
{
    u64 groups = n / factor, period = done * factor;
    for (u64 i = first(); i < batch * n; i += threads()) {
        u64 row = i / n, place = i % n;
        u64 j = place % groups, q = place / groups;
        const Complex *from = x + row * n;
        u64 angle = j % done + q * done;
        Complex sum = from[j];
        u64 turn = 0;
        for (u64 p = 1; p < factor; p++) {
            turn += angle;
            turn -= turn >= period ? period : 0;
            Value sine, cosine;
            sine_cosine_of_pi((Value)2 * (Value)turn / (Value)period, &sine, &cosine);
            sine *= direction;
            Complex value = from[j + p * groups];
            sum.re += value.re * cosine - value.im * sine;
            sum.im += value.re * sine + value.im * cosine;
        }
        Complex *to = y + row * n + j / done * period + j % done + q * done;
        to->re = sum.re * scale;
        to->im = sum.im * scale;
    }
}
