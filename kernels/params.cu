// Kernels for tests of parameter passing: sizes, alignment, structs, pointers inside structs.

struct Mixed {
    float a;
    int b;
    double c; // 16 bytes in all, aligned to 8
};

// out[i] = a * i + b + c. Any 1-D launch of at least n threads.
extern "C" __global__ void struct_by_value(Mixed p, double *out, unsigned int n)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = (double)p.a * i + p.b + p.c;
    }
}

// out[i] = { p.x + i, p.y - i }: a parameter aligned to 16, and 16-byte stores.
extern "C" __global__ void double2_by_value(double2 p, double2 *out, unsigned int n)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = make_double2(p.x + i, p.y - i);
    }
}

struct View {
    const float *data;
    unsigned int length;
    float gain;
    float *out;
};

// out[i] = gain * data[i], where the pointers travel inside the struct (24 bytes, pointers at 0 and 16).
extern "C" __global__ void struct_with_pointers(View view)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < view.length) {
        view.out[i] = view.gain * view.data[i];
    }
}

// One scalar of each width, in an order that needs padding. One thread; out takes 8 doubles.
extern "C" __global__ void every_scalar(signed char i8, unsigned short u16, unsigned char u8, int i32, bool flag,
                                        long long i64, float f32, double f64, double *out)
{
    out[0] = i8;
    out[1] = u16;
    out[2] = u8;
    out[3] = i32;
    out[4] = flag ? 1.0 : 0.0;
    out[5] = (double)i64;
    out[6] = f32;
    out[7] = f64;
}

struct Table {
    float values[256];
};

// out[i] = table.values[i]: a kilobyte by value, indexed at run time. Any 1-D launch of 256 threads or more.
extern "C" __global__ void table_by_value(Table table, float *out)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 256) {
        out[i] = table.values[i];
    }
}

// Position of each thread: out[linear] = { block linear index, thread linear index }, for any 3-D launch. The output
// holds two words for every thread of the grid.
extern "C" __global__ void where_am_i(uint2 *out)
{
    unsigned int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    unsigned int threads = blockDim.x * blockDim.y * blockDim.z;
    out[(size_t)block * threads + thread] = make_uint2(block, thread);
}
