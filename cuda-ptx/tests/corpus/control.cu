// Switches, loops, recursion, function pointers, virtual functions.
__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

__device__ __noinline__ int twice(int x) { return 2 * x; }
__device__ __noinline__ int square(int x) { return x * x; }
typedef int (*Step)(int);
__device__ Step steps[2] = {twice, square};

struct Shape { __device__ virtual float area() const = 0; };
struct Square : Shape { float side; __device__ float area() const override { return side * side; } };
struct Disc : Shape { float r; __device__ float area() const override { return 3.14f * r * r; } };

extern "C" __global__ void recurse(int *out, int n) { out[threadIdx.x] = fib(n + threadIdx.x); }

extern "C" __global__ void indirect(int *out, int which) {
    out[threadIdx.x] = steps[which & 1](out[threadIdx.x]);
}

extern "C" __global__ void shapes(float *out, int kind) {
    Square s; s.side = out[0];
    Disc d; d.r = out[1];
    Shape *shape = kind ? (Shape *)&s : (Shape *)&d;
    out[threadIdx.x] = shape->area();
}

extern "C" __global__ void select(int *out, int op) {
    int x = out[threadIdx.x], y = threadIdx.x;
    switch (op) {
    case 0: x += y; break;
    case 1: x -= y; break;
    case 2: x *= y; out[y + 1] = 3; break;
    case 3: x = x / (y + 1); break;
    case 4: x ^= y; out[y + 2] = 5; break;
    case 5: x = x % (y + 1); break;
    case 6: x = __popc(x); break;
    case 7: x = __clz(x) << y; break;
    case 8: x = atomicAdd(out, y); break;
    default: x = -1;
    }
    while (x > 100 && (x & 1)) x = (x * 3 + 1) >> 2;
    out[y] = x;
}
