// Images.
// compile nvrtc12.9-sm_80 nvrtc13.0-sm_90 clang22-sm_80 nvcc13.0-sm_90-fast nvrtc12.4-sm_75-G nvrtc13.0-sm_120
typedef unsigned u32;
typedef unsigned char u8;

// case sobel <<<3x3, 16x16>>>(in u8 bits 2304, out u8 2304, i32 48, i32 48) ref sobel
extern "C" __global__ void sobel(const u8* in, u8* out, int width, int height) {
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    if (x >= width || y >= height) return;
    auto at = [&](int dx, int dy) { return (int)in[min(max(y + dy, 0), height - 1) * width + min(max(x + dx, 0), width - 1)]; };
    int gx = at(1, -1) + 2 * at(1, 0) + at(1, 1) - at(-1, -1) - 2 * at(-1, 0) - at(-1, 1);
    int gy = at(-1, 1) + 2 * at(0, 1) + at(1, 1) - at(-1, -1) - 2 * at(0, -1) - at(1, -1);
    out[y * width + x] = (u8)min(abs(gx) + abs(gy), 255);
}

// The driver fuses products and sums that PTX leaves without a rounding; assembled by `ptxas -fmad=false`, every bit
// is the same on the H200.
// case bilateral <<<2x2, 16x16>>>(in f32 pos 1024, out f32 1024, i32 32, i32 32, f32 0.5, f32 8) ulp 3
extern "C" __global__ void bilateral(const float* in, float* out, int width, int height, float spatial, float range) {
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    float here = in[y * width + x], sum = 0, weights = 0;
    for (int dy = -2; dy <= 2; dy++)
        for (int dx = -2; dx <= 2; dx++) {
            int sx = x + dx, sy = y + dy;
            if (sx < 0 || sy < 0 || sx >= width || sy >= height) continue;
            float v = in[sy * width + sx], d = v - here;
            float weight = expf(-spatial * (dx * dx + dy * dy) - range * d * d);
            sum = fmaf(weight, v, sum);
            weights += weight;
        }
    out[y * width + x] = sum / weights;
}

// A moving sum along rows of packed pixels, then divided by multiplication.
// case box_filter <<<1, 64>>>(in u32 bits 4096, out u32 4096, u32 64)
extern "C" __global__ void box_filter(const u32* in, u32* out, u32 width) {
    const u32* row = in + threadIdx.x * width;
    u32 sums[4] = {0, 0, 0, 0};
    for (int x = -4; x < (int)width; x++) {
        u32 enter = x + 4 < (int)width ? row[x + 4] : 0, leave = x - 5 >= 0 ? row[x - 5] : 0, packed = 0;
        for (u32 c = 0; c < 4; c++) {
            sums[c] += (enter >> 8 * c & 255) - (leave >> 8 * c & 255);
            packed |= __umulhi(sums[c], 477218589u) << 8 * c;
        }
        if (x >= 0) out[threadIdx.x * width + x] = packed;
    }
}

// case mandelbrot <<<6x6, 8x8>>>(out u16 2304, u32 48, u32 48, u32 100)
extern "C" __global__ void mandelbrot(unsigned short* out, u32 width, u32 height, u32 limit) {
    u32 px = blockIdx.x * 8 + threadIdx.x, py = blockIdx.y * 8 + threadIdx.y, n = 0;
    float cx = __fmaf_rn((float)px, __fdiv_rn(3, (float)width), -2.25f), cy = __fmaf_rn((float)py, __fdiv_rn(3, (float)height), -1.5f);
    float x = 0, y = 0;
    while (n < limit) {
        float xx = __fmul_rn(x, x), yy = __fmul_rn(y, y);
        if (__fadd_rn(xx, yy) > 4) break;
        y = __fmaf_rn(__fadd_rn(x, x), y, cy);
        x = __fadd_rn(__fsub_rn(xx, yy), cx);
        n++;
    }
    out[py * width + px] = (unsigned short)n;
}

// BT.601 in integers. Pixels are structs of three bytes.
struct Pixel {
    u8 r, g, b;
};

// case luma <<<4, 64>>>(in u8 bits 768, out u8 768)
extern "C" __global__ void luma(const Pixel* in, Pixel* out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    Pixel p = in[i];
    int y = (66 * p.r + 129 * p.g + 25 * p.b + 128 >> 8) + 16;
    int u = (-38 * p.r - 74 * p.g + 112 * p.b + 128 >> 8) + 128;
    int v = (112 * p.r - 94 * p.g - 18 * p.b + 128 >> 8) + 128;
    out[i] = {(u8)y, (u8)u, (u8)v};
}

__device__ void order(u32& a, u32& b) {
    u32 low = __vminu4(a, b);
    b = __vmaxu4(a, b);
    a = low;
}

// Median of three by three, four pixels per word, by a network of bytewise minima and maxima.
// case median <<<2, 62>>>(in u32 bits 512, out u32 124)
extern "C" __global__ void median(const u32* in, u32* out) {
    u32 x = threadIdx.x + 1, v[9];
    for (u32 y = 0; y < 3; y++)
        for (u32 i = 0; i < 3; i++) v[y * 3 + i] = in[(blockIdx.x + y) * 64 + x + i - 1];
    order(v[1], v[2]), order(v[4], v[5]), order(v[7], v[8]), order(v[0], v[1]), order(v[3], v[4]), order(v[6], v[7]);
    order(v[1], v[2]), order(v[4], v[5]), order(v[7], v[8]), order(v[0], v[3]), order(v[5], v[8]), order(v[4], v[7]);
    order(v[3], v[6]), order(v[1], v[4]), order(v[2], v[5]), order(v[4], v[7]), order(v[4], v[2]), order(v[6], v[4]);
    order(v[4], v[2]);
    out[blockIdx.x * 62 + threadIdx.x] = v[4];
}

// Bilinear resizing, texture-like: clamped, half-pixel centres.
// case resize <<<5x5, 8x8>>>(in f32 pos 576, out f32 1600, i32 24, i32 24, i32 40, i32 40)
extern "C" __global__ void resize(const float* in, float* out, int width, int height, int to_width, int to_height) {
    int x = blockIdx.x * 8 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    float sx = __fmaf_rn(x + 0.5f, __fdiv_rn((float)width, (float)to_width), -0.5f);
    float sy = __fmaf_rn(y + 0.5f, __fdiv_rn((float)height, (float)to_height), -0.5f);
    float fx = floorf(sx), fy = floorf(sy), u = __fsub_rn(sx, fx), v = __fsub_rn(sy, fy);
    auto at = [&](int x, int y) { return in[min(max(y, 0), height - 1) * width + min(max(x, 0), width - 1)]; };
    auto mix = [](float a, float b, float t) { return __fmaf_rn(t, __fsub_rn(b, a), a); };
    int ix = (int)fx, iy = (int)fy;
    out[y * to_width + x] = mix(mix(at(ix, iy), at(ix + 1, iy), u), mix(at(ix, iy + 1), at(ix + 1, iy + 1), u), v);
}
