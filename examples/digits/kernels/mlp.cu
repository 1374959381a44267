// The layers of the digit classifier: normalize, dense_relu, dense_relu, dense, argmax (or softmax for the
// confidence). Matrices are row-major with one row per image.
//
// One thread computes each sum in order of its index. Every product is added by fmaf, which rounds once by
// definition. So the logits have the same bits on a GPU, on the CPU device and in train.py's check. With
// `sum + x * w`, each compiler could fuse product and sum or not, and results would differ by that rounding.
// Only softmax, whose expf is approximate, may differ in the last bits.

// out[i] = pixels[i] / 16: maps the pixels 0..16 to 0..1, exactly. Any 1-D launch of at least n threads.
extern "C" __global__ void normalize(const unsigned char *pixels, float *out, unsigned int n)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = pixels[i] * 0.0625f;
    }
}

// One output of one layer for one image: bias + x[row] . w[:, column].
__device__ float dense_sum(const float *x, const float *w, const float *bias, unsigned int row, unsigned int column,
                           unsigned int inputs, unsigned int outputs)
{
    float sum = bias[column];
    for (unsigned int i = 0; i < inputs; i++) {
        sum = fmaf(x[(size_t)row * inputs + i], w[(size_t)i * outputs + column], sum);
    }
    return sum;
}

// out[rows x outputs] = relu(x[rows x inputs] * w[inputs x outputs] + bias[outputs]).
// Any 2-D launch that covers (outputs, rows): adjacent threads then read adjacent weights.
extern "C" __global__ void dense_relu(const float *__restrict__ x, const float *__restrict__ w,
                                      const float *__restrict__ bias, float *__restrict__ out, unsigned int rows,
                                      unsigned int inputs, unsigned int outputs)
{
    unsigned int column = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < rows && column < outputs) {
        float sum = dense_sum(x, w, bias, row, column, inputs, outputs);
        out[(size_t)row * outputs + column] = fmaxf(sum, 0.0f);
    }
}

// As dense_relu, without relu, for the last layer.
extern "C" __global__ void dense(const float *__restrict__ x, const float *__restrict__ w,
                                 const float *__restrict__ bias, float *__restrict__ out, unsigned int rows,
                                 unsigned int inputs, unsigned int outputs)
{
    unsigned int column = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < rows && column < outputs) {
        out[(size_t)row * outputs + column] = dense_sum(x, w, bias, row, column, inputs, outputs);
    }
}

// labels[row] = index of the row's largest logit, or the lowest of equal ones. One thread per row, because ten
// classes are too few to share. Any 1-D launch of at least `rows` threads.
extern "C" __global__ void argmax(const float *logits, unsigned int *labels, unsigned int rows, unsigned int classes)
{
    unsigned int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) {
        return;
    }
    const float *mine = logits + (size_t)row * classes;
    unsigned int best = 0;
    for (unsigned int c = 1; c < classes; c++) {
        if (mine[c] > mine[best]) {
            best = c;
        }
    }
    labels[row] = best;
}

// probabilities = softmax of each row of logits, for the confidence. probabilities may be logits. Any 1-D launch
// of at least `rows` threads.
extern "C" __global__ void softmax(const float *logits, float *probabilities, unsigned int rows, unsigned int classes)
{
    unsigned int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows || classes == 0) {
        return;
    }
    const float *mine = logits + (size_t)row * classes;
    float *out = probabilities + (size_t)row * classes;
    // The maximum is subtracted so that expf cannot overflow.
    float largest = mine[0];
    for (unsigned int c = 1; c < classes; c++) {
        largest = fmaxf(largest, mine[c]);
    }
    float sum = 0.0f;
    for (unsigned int c = 0; c < classes; c++) {
        float e = expf(mine[c] - largest);
        out[c] = e;
        sum += e;
    }
    for (unsigned int c = 0; c < classes; c++) {
        out[c] /= sum;
    }
}
