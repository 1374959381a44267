// Kernels for timing the CPU device, in addition to those in kernels/. Each does the same work as a function in
// scalar.rs, without optimisations.

// Iterations until the orbit of each pixel leaves the circle, at most `limit`.
extern "C" __global__ void mandelbrot(unsigned int *out, unsigned int width, unsigned int height, unsigned int limit)
{
    unsigned int x = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) {
        return;
    }
    float cx = x * 3.0f / width - 2.0f;
    float cy = y * 2.0f / height - 1.0f;
    float zx = 0.0f;
    float zy = 0.0f;
    unsigned int i = 0;
    while (i < limit && zx * zx + zy * zy < 4.0f) {
        float t = zx * zx - zy * zy + cx;
        zy = 2.0f * zx * zy + cy;
        zx = t;
        i++;
    }
    out[y * width + x] = i;
}

constexpr unsigned int TILE = 32;
constexpr unsigned int ROWS = 8;

// Transposes `in` into `out` through a padded tile, in blocks of 32 x 8.
extern "C" __global__ void transpose(const float *in, float *out, unsigned int width, unsigned int height)
{
    __shared__ float tile[TILE][TILE + 1];
    unsigned int x = blockIdx.x * TILE + threadIdx.x;
    unsigned int y = blockIdx.y * TILE + threadIdx.y;
    for (unsigned int i = 0; i < TILE; i += ROWS) {
        if (x < width && y + i < height) {
            tile[threadIdx.y + i][threadIdx.x] = in[(size_t)(y + i) * width + x];
        }
    }
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x;
    y = blockIdx.x * TILE + threadIdx.y;
    for (unsigned int i = 0; i < TILE; i += ROWS) {
        if (x < height && y + i < width) {
            out[(size_t)(y + i) * height + x] = tile[threadIdx.x][threadIdx.y + i];
        }
    }
}

// The acceleration of each body (x, y, z, mass) by all bodies.
extern "C" __global__ void nbody(const float4 *bodies, float4 *acceleration, unsigned int n)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) {
        return;
    }
    float4 me = bodies[i];
    float ax = 0.0f;
    float ay = 0.0f;
    float az = 0.0f;
    for (unsigned int j = 0; j < n; j++) {
        float4 other = bodies[j];
        float dx = other.x - me.x;
        float dy = other.y - me.y;
        float dz = other.z - me.z;
        float square = dx * dx + dy * dy + dz * dz + 1e-3f;
        float inverse = 1.0f / sqrtf(square);
        float weight = other.w * inverse * inverse * inverse;
        ax += weight * dx;
        ay += weight * dy;
        az += weight * dz;
    }
    acceleration[i] = make_float4(ax, ay, az, 0.0f);
}

__device__ float normal(float x)
{
    // Abramowitz and Stegun 26.2.17.
    float k = 1.0f / (1.0f + 0.2316419f * fabsf(x));
    float poly = k * (0.31938153f + k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f))));
    float tail = 0.39894228f * expf(-0.5f * x * x) * poly;
    return x > 0.0f ? 1.0f - tail : tail;
}

// The price of European call options.
extern "C" __global__ void black_scholes(const float *spot, const float *strike, const float *years, float *price,
                                         unsigned int n)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) {
        return;
    }
    const float rate = 0.02f;
    const float volatility = 0.3f;
    float spread = volatility * sqrtf(years[i]);
    float d1 = (logf(spot[i] / strike[i]) + (rate + 0.5f * volatility * volatility) * years[i]) / spread;
    float d2 = d1 - spread;
    price[i] = spot[i] * normal(d1) - strike[i] * expf(-rate * years[i]) * normal(d2);
}

// Applies rounds of PCG's output function to each element.
extern "C" __global__ void pcg(unsigned int *x, unsigned int rounds, unsigned int n)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) {
        return;
    }
    unsigned int state = x[i];
    for (unsigned int r = 0; r < rounds; r++) {
        state = state * 747796405u + 2891336453u;
        unsigned int word = ((state >> ((state >> 28) + 4)) ^ state) * 277803737u;
        state = (word >> 22) ^ word;
    }
    x[i] = state;
}
