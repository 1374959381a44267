// Stencils and convolutions.
// compile nvrtc12.9-sm_80 nvrtc13.0-sm_90-fast clang22-sm_80-O3 nvcc13.0-sm_75 nvrtc13.0-sm_120-fast
typedef unsigned u32;
typedef unsigned long long u64;

// case heat_2d <<<4x4, 16x16>>>(in f32 unit 3600, out f32 3600, u32 60, u32 60, f32 0.2)
extern "C" __global__ void heat_2d(const float* in, float* out, u32 width, u32 height, float k) {
    __shared__ float tile[18][18];
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    int t = threadIdx.y * 16 + threadIdx.x;
    for (int i = t; i < 18 * 18; i += 256) {
        int sx = (int)(blockIdx.x * 16) + i % 18 - 1, sy = (int)(blockIdx.y * 16) + i / 18 - 1;
        sx = min(max(sx, 0), (int)width - 1), sy = min(max(sy, 0), (int)height - 1);
        tile[i / 18][i % 18] = in[sy * width + sx];
    }
    __syncthreads();
    if (x >= (int)width || y >= (int)height) return;
    int i = threadIdx.x + 1, j = threadIdx.y + 1;
    float around = __fadd_rn(__fadd_rn(tile[j - 1][i], tile[j + 1][i]), __fadd_rn(tile[j][i - 1], tile[j][i + 1]));
    out[y * width + x] = __fmaf_rn(k, __fmaf_rn(-4.0f, tile[j][i], around), tile[j][i]);
}

// Seven points in three dimensions, marching along z with a plane in shared memory and two in registers.
// case laplace_3d <<<3x3, 8x8>>>(in f64 unit 4800, out f64 4800, u32 20, u32 20, u32 12)
extern "C" __global__ void laplace_3d(const double* in, double* out, int nx, int ny, int nz) {
    __shared__ double plane[10][10];
    int x = blockIdx.x * 8 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    int i = threadIdx.x + 1, j = threadIdx.y + 1;
    bool inside = x < nx && y < ny;
    auto at = [&](int x, int y, int z) {
        return x < 0 || y < 0 || z < 0 || x >= nx || y >= ny || z >= nz ? 0.0 : in[(z * ny + y) * nx + x];
    };
    double below = 0, here = at(x, y, 0);
    for (int z = 0; z < nz; z++) {
        double above = at(x, y, z + 1);
        plane[j][i] = here;
        if (i == 1) plane[j][0] = at(x - 1, y, z);
        if (i == 8) plane[j][9] = at(x + 1, y, z);
        if (j == 1) plane[0][i] = at(x, y - 1, z);
        if (j == 8) plane[9][i] = at(x, y + 1, z);
        __syncthreads();
        double sum = plane[j][i - 1] + plane[j][i + 1] + plane[j - 1][i] + plane[j + 1][i] + below + above;
        if (inside) out[(z * ny + y) * nx + x] = __fma_rn(-6.0, here, sum);
        below = here, here = above;
        __syncthreads();
    }
}

// Life, 64 cells per word: full adders on whole words.
// case life <<<1, 64>>>(inout u64 bits 64, u32 20) ref life
extern "C" __global__ void life(u64* rows, u32 generations) {
    __shared__ u64 world[64];
    u32 t = threadIdx.x;
    world[t] = rows[t];
    for (u32 g = 0; g < generations; g++) {
        __syncthreads();
        u64 up = world[(t + 63) % 64], here = world[t], down = world[(t + 1) % 64];
        auto west = [](u64 x) { return x << 1 | x >> 63; };
        auto east = [](u64 x) { return x >> 1 | x << 63; };
        u64 ones = 0, twos = 0, fours = 0;
        const u64 neighbours[8] = {west(up), up, east(up), west(here), east(here), west(down), down, east(down)};
        for (u64 n : neighbours) {
            u64 carry = ones & n;
            ones ^= n;
            u64 carry2 = twos & carry;
            twos ^= carry;
            fours |= carry2;
        }
        __syncthreads();
        world[t] = twos & ~fours & (ones | here);
    }
    rows[t] = world[t];
}

__constant__ float taps[9] = {-0.0625f, 0.125f, 0.25f, 0.5f, 1.0f, 0.5f, 0.25f, 0.125f, -0.0625f};

// One dimension, taps in constant memory, several outputs per thread.
// case convolve_taps <<<3, 64>>>(in f32 unit 776, out f32 768, u32 768)
extern "C" __global__ void convolve_taps(const float* in, float* out, u32 n) {
    u32 from = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (from + 4 > n) return;
    float window[12];
#pragma unroll
    for (u32 i = 0; i < 12; i++) window[i] = in[from + i];
#pragma unroll
    for (u32 o = 0; o < 4; o++) {
        float sum = 0;
#pragma unroll
        for (u32 i = 0; i < 9; i++) sum = __fmaf_rn(taps[i], window[o + i], sum);
        out[from + o] = sum;
    }
}

// Two-dimensional convolution with several channels and filters, stride and padding, as a direct loop.
// case convolve_2d <<<7x7x6, 2x2>>>(in f32 unit 507, in f32 unit 162, in f32 unit 6, out f32 1014, struct i32 3 i32 13 i32 13 i32 6 i32 3 i32 1 i32 1)
struct Shape {
    int channels, height, width, filters, size, stride, pad;
};
extern "C" __global__ void convolve_2d(const float* in, const float* weights, const float* bias, float* out, Shape s) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, f = blockIdx.z;
    int width = (s.width + 2 * s.pad - s.size) / s.stride + 1, height = (s.height + 2 * s.pad - s.size) / s.stride + 1;
    if (x >= width || y >= height) return;
    float sum = bias[f];
    for (int c = 0; c < s.channels; c++)
        for (int ky = 0; ky < s.size; ky++)
            for (int kx = 0; kx < s.size; kx++) {
                int sx = x * s.stride + kx - s.pad, sy = y * s.stride + ky - s.pad;
                if (sx < 0 || sy < 0 || sx >= s.width || sy >= s.height) continue;
                sum = __fmaf_rn(in[(c * s.height + sy) * s.width + sx], weights[((f * s.channels + c) * s.size + ky) * s.size + kx], sum);
            }
    out[(f * height + y) * width + x] = fmaxf(sum, 0);
}

// Leap-frog in time inside one block: the field stays in shared memory for all steps.
// case wave_1d <<<2, 128>>>(in f32 unit 256, out f32 256, u32 50, f32 0.3)
extern "C" __global__ void wave_1d(const float* in, float* out, u32 steps, float c2) {
    __shared__ float field[2][130];
    u32 t = threadIdx.x + 1;
    if (t == 1) field[0][0] = field[1][0] = field[0][129] = field[1][129] = 0;
    field[0][t] = field[1][t] = in[blockIdx.x * 128 + threadIdx.x];
    for (u32 s = 0; s < steps; s++) {
        u32 now = s & 1;
        __syncthreads();
        float next = __fmaf_rn(c2, __fadd_rn(__fmaf_rn(-2.0f, field[now][t], field[now][t - 1]), field[now][t + 1]),
                               __fmaf_rn(2.0f, field[now][t], -field[now ^ 1][t]));
        __syncthreads();
        field[now ^ 1][t] = next;
    }
    __syncthreads();
    out[blockIdx.x * 128 + threadIdx.x] = field[steps & 1][t];
}
