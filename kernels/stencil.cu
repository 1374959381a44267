// One step of a 5-point stencil on a row-major grid: out = centre * u + side * (north + south + west + east),
// with the border copied unchanged. Any 2-D launch that covers (width, height).
// out must not be u: a step reads its neighbours' old values.
extern "C" __global__ void stencil5(const float *__restrict__ u, float *__restrict__ out, unsigned int width,
                                    unsigned int height, float centre, float side)
{
    unsigned int x = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) {
        return;
    }
    size_t here = (size_t)y * width + x;
    if (x == 0 || y == 0 || x == width - 1 || y == height - 1) {
        out[here] = u[here];
        return;
    }
    // Plain operations in this order without fmaf, so numpy and Rust arrays reproduce the result exactly.
    float sides = u[here - width] + u[here + width] + u[here - 1] + u[here + 1];
    out[here] = centre * u[here] + side * sides;
}
