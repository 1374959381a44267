// Particles.
// compile nvrtc12.4-sm_80 nvrtc13.0-sm_90-fast clang19-sm_90-O3 nvcc13.0-sm_75 nvrtc13.0-sm_120-fast
typedef unsigned u32;

// All pairs, tiles of 64 bodies in shared memory.
// case n_body <<<4, 64>>>(in f32 unit 1024, out f32 1024, u32 256, f32 0.01)
extern "C" __global__ void n_body(const float4* bodies, float4* forces, u32 n, float softening) {
    __shared__ float4 tile[64];
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 me = bodies[i];
    float fx = 0, fy = 0, fz = 0;
    for (u32 from = 0; from < n; from += 64) {
        tile[threadIdx.x] = bodies[from + threadIdx.x];
        __syncthreads();
#pragma unroll 8
        for (u32 k = 0; k < 64; k++) {
            float dx = tile[k].x - me.x, dy = tile[k].y - me.y, dz = tile[k].z - me.z;
            float square = fmaf(dx, dx, fmaf(dy, dy, fmaf(dz, dz, softening)));
            float inverse = rsqrtf(square), strength = tile[k].w * inverse * inverse * inverse;
            fx = fmaf(dx, strength, fx), fy = fmaf(dy, strength, fy), fz = fmaf(dz, strength, fz);
        }
        __syncthreads();
    }
    forces[i] = make_float4(fx, fy, fz, 0);
}

// Lennard-Jones with a cutoff, in double precision, in a periodic box.
// case lennard_jones <<<2, 32>>>(in f64 pos 192, out f64 192, out f64 64, f64 0.35)
extern "C" __global__ void lennard_jones(const double* positions, double* forces, double* energies, double cutoff) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    double f[3] = {0, 0, 0}, energy = 0;
    for (u32 j = 0; j < n; j++) {
        if (j == i) continue;
        double d[3], square = 0;
        for (int a = 0; a < 3; a++) {
            d[a] = __dsub_rn(positions[3 * i + a], positions[3 * j + a]);
            d[a] = __dsub_rn(d[a], rint(d[a]));
            square = __fma_rn(d[a], d[a], square);
        }
        if (square > cutoff * cutoff) continue;
        double inverse = __ddiv_rn(0.01, square), six = __dmul_rn(__dmul_rn(inverse, inverse), inverse);
        double strength = __dmul_rn(__dmul_rn(24.0, __ddiv_rn(six, square)), __fma_rn(2.0, six, -1.0));
        for (int a = 0; a < 3; a++) f[a] = __fma_rn(strength, d[a], f[a]);
        energy = __fma_rn(__dmul_rn(4.0, six), __dsub_rn(six, 1.0), energy);
    }
    for (int a = 0; a < 3; a++) forces[3 * i + a] = f[a];
    energies[i] = energy;
}

// Fourth-order Runge-Kutta for the Lorenz system, one start per thread. Chaos amplifies any difference.
// case lorenz <<<2, 32>>>(inout f64 unit 192, u32 200)
extern "C" __global__ void lorenz(double* state, u32 steps) {
    double* s = state + 3 * (blockIdx.x * blockDim.x + threadIdx.x);
    double x[3] = {s[0], s[1], s[2]};
    const double h = 0.01;
    auto slope = [](const double* x, double* k) {
        k[0] = __dmul_rn(10.0, __dsub_rn(x[1], x[0]));
        k[1] = __fma_rn(x[0], __dsub_rn(28.0, x[2]), -x[1]);
        k[2] = __fma_rn(x[0], x[1], -__dmul_rn(8.0 / 3.0, x[2]));
    };
    for (u32 n = 0; n < steps; n++) {
        double k1[3], k2[3], k3[3], k4[3], y[3];
        slope(x, k1);
        for (int a = 0; a < 3; a++) y[a] = __fma_rn(h / 2, k1[a], x[a]);
        slope(y, k2);
        for (int a = 0; a < 3; a++) y[a] = __fma_rn(h / 2, k2[a], x[a]);
        slope(y, k3);
        for (int a = 0; a < 3; a++) y[a] = __fma_rn(h, k3[a], x[a]);
        slope(y, k4);
        for (int a = 0; a < 3; a++)
            x[a] = __fma_rn(h / 6, __dadd_rn(__dadd_rn(k1[a], k4[a]), __dmul_rn(2.0, __dadd_rn(k2[a], k3[a]))), x[a]);
    }
    for (int a = 0; a < 3; a++) s[a] = x[a];
}

// Ising spins on a checkerboard, with one generator per site. Acceptance by integer thresholds.
// case ising <<<1, 256>>>(inout i8 const:1 1024, u32 10, u32 12345)
extern "C" __global__ void ising(signed char* spins, u32 sweeps, u32 seed) {
    __shared__ signed char s[32][32];
    const u32 accept[5] = {0xFFFFFFFFu, 0xFFFFFFFFu, 0xFFFFFFFFu, 0x2F000000u, 0x08C00000u};
    for (u32 i = threadIdx.x; i < 1024; i += 256) s[i / 32][i % 32] = spins[i];
    for (u32 sweep = 0; sweep < 2 * sweeps; sweep++) {
        __syncthreads();
        for (u32 i = threadIdx.x; i < 512; i += 256) {
            u32 y = i / 16, x = i % 16 * 2 + ((y + sweep) & 1);
            int sum = s[(y + 1) & 31][x] + s[(y + 31) & 31][x] + s[y][(x + 1) & 31] + s[y][(x + 31) & 31];
            u32 r = (sweep * 1024 + y * 32 + x) * 2654435761u ^ seed;
            r ^= r >> 15, r *= 0x2c1b3c6du, r ^= r >> 12, r *= 0x297a2d39u, r ^= r >> 15;
            if (r < accept[(s[y][x] * sum) / 2 + 2]) s[y][x] = -s[y][x];
        }
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < 1024; i += 256) spins[i] = s[i / 32][i % 32];
}

// Spheres and a plane: rays with reflections, branches that diverge, structs passed by value and by reference.
struct Vector {
    float x, y, z;
};
struct Hit {
    float distance;
    Vector point, normal;
    int material;
};
__device__ Vector operator+(Vector a, Vector b) { return {a.x + b.x, a.y + b.y, a.z + b.z}; }
__device__ Vector operator*(float k, Vector a) { return {k * a.x, k * a.y, k * a.z}; }
__device__ float dot(Vector a, Vector b) { return fmaf(a.x, b.x, fmaf(a.y, b.y, a.z * b.z)); }

__device__ __noinline__ bool sphere(Vector centre, float radius, int material, Vector from, Vector way, Hit& hit) {
    Vector d = from + -1 * centre;
    float b = dot(d, way), c = dot(d, d) - radius * radius, root = b * b - c;
    if (root < 0) return false;
    float distance = -b - sqrtf(root);
    if (distance < 1e-3f || distance >= hit.distance) return false;
    Vector point = from + distance * way;
    hit = {distance, point, (1 / radius) * (point + -1 * centre), material};
    return true;
}

// The driver fuses products and sums that PTX leaves without a rounding; assembled by `ptxas -fmad=false`, every bit
// is the same on the H200.
// case rays <<<4x4, 8x8>>>(out f32 1024, u32 32) ulp 4 abs 1e-5
extern "C" __global__ void rays(float* out, u32 size) {
    u32 px = blockIdx.x * 8 + threadIdx.x, py = blockIdx.y * 8 + threadIdx.y;
    Vector from = {0, 0.5f, -3}, way = {(px + 0.5f) / size - 0.5f, 0.5f - (py + 0.5f) / size, 1};
    way = rsqrtf(dot(way, way)) * way;
    float light = 0, share = 1;
    for (int bounce = 0; bounce < 3; bounce++) {
        Hit hit = {1e9f, {0, 0, 0}, {0, 1, 0}, 0};
        sphere({-0.6f, 0.4f, 0}, 0.5f, 1, from, way, hit);
        sphere({0.7f, 0.3f, 0.4f}, 0.4f, 2, from, way, hit);
        if (way.y < 0 && -from.y / way.y < hit.distance && hit.material == 0) {
            float distance = -from.y / way.y;
            hit = {distance, from + distance * way, {0, 1, 0}, 3};
        }
        if (hit.material == 0) {
            light += share * (0.5f + 0.5f * way.y);
            break;
        }
        light += share * 0.6f * fmaxf(dot(hit.normal, {0.57735f, 0.57735f, -0.57735f}), 0);
        share *= hit.material == 3 ? 0.2f : 0.5f;
        from = hit.point;
        way = way + -2 * dot(way, hit.normal) * hit.normal;
    }
    out[py * size + px] = light;
}
