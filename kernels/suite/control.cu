// Calls, function pointers, recursion, tables, structs, constants, globals.
// compile nvrtc12.4-sm_75 nvrtc12.9-sm_80-G nvrtc13.0-sm_90 clang19-sm_80 clang22-sm_80-G nvcc13.0-sm_90 nvrtc13.0-sm_120
typedef unsigned u32;
typedef unsigned long long u64;

__device__ __noinline__ int twice(int x) { return 2 * x; }
__device__ __noinline__ int square(int x) { return x * x; }
__device__ __noinline__ int negate(int x) { return -x; }
__device__ __noinline__ int collatz(int x) { return x & 1 ? 3 * x + 1 : x / 2; }
typedef int (*Function)(int);
__device__ Function functions[4] = {twice, square, negate, collatz};

// Calls through a table in global memory, and through a pointer that is chosen at run time and passed on.
__device__ __noinline__ int apply(Function f, int x, int times) {
    for (int i = 0; i < times; i++) x = f(x);
    return x;
}

// case function_pointers <<<2, 64>>>(in i32 below:100 128, out i32 256) ref function_pointers
extern "C" __global__ void function_pointers(const int* in, int* out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = functions[i % 4](in[i]);
    out[128 + i] = apply(i % 3 ? twice : functions[3], in[i], i % 5);
}

struct Animal {
    int age;
    __device__ explicit Animal(int age) : age(age) {}
    __device__ virtual int legs() const { return 0; }
    __device__ virtual int score(int k) const { return age * k + legs(); }
};
struct Bird : Animal {
    __device__ explicit Bird(int age) : Animal(age) {}
    __device__ int legs() const override { return 2; }
};
struct Insect : Animal {
    int wings;
    __device__ Insect(int age, int wings) : Animal(age), wings(wings) {}
    __device__ int legs() const override { return 6; }
    __device__ int score(int k) const override { return Animal::score(k) * wings; }
};

// case virtual_calls <<<2, 32>>>(in i32 below:30 64, out i32 64) ref virtual_calls
extern "C" __global__ void virtual_calls(const int* in, int* out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    Bird bird(in[i]);
    Insect insect(in[i], 4);
    const Animal* animals[2] = {&bird, &insect};
    out[i] = animals[in[i] & 1]->score(i) + 1000 * animals[i & 1]->legs();
}

__device__ u32 ackermann(u32 m, u32 n) { return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1)); }

__device__ void quicksort(int* x, int low, int high) {
    while (low < high) {
        int pivot = x[(low + high) / 2], i = low, j = high;
        while (i <= j) {
            while (x[i] < pivot) i++;
            while (x[j] > pivot) j--;
            if (i <= j) {
                int swap = x[i];
                x[i++] = x[j], x[j--] = swap;
            }
        }
        quicksort(x, low, j);
        low = i;
    }
}

// case recursion <<<1, 32>>>(in i32 below:1000 640, out i32 640, out u32 32)
extern "C" __global__ void recursion(const int* in, int* out, u32* numbers) {
    int row[20];
    for (int k = 0; k < 20; k++) row[k] = in[threadIdx.x * 20 + k];
    quicksort(row, 0, 19);
    for (int k = 0; k < 20; k++) out[threadIdx.x * 20 + k] = row[k];
    numbers[threadIdx.x] = ackermann(threadIdx.x % 3, threadIdx.x % 5);
}

// A stack machine in local memory: its dense switch becomes a branch table.
// case interpreter <<<1, 64>>>(in u8 below:12 4096, out i32 64)
extern "C" __global__ void interpreter(const unsigned char* programs, int* out) {
    const unsigned char* program = programs + threadIdx.x * 64;
    int stack[16] = {1, 2}, top = 1, budget = 200;
    for (int at = 0; at < 64 && budget--; at++) {
        int &a = stack[top & 15], &b = stack[(top - 1) & 15];
        switch (program[at]) {
        case 0: stack[++top & 15] = at; break;
        case 1: b += a, top--; break;
        case 2: b -= a, top--; break;
        case 3: b *= a, top--; break;
        case 4: { int t = a; a = b, b = t; break; }
        case 5: stack[(top + 1) & 15] = a, top++; break;
        case 6: a = -a; break;
        case 7: a ^= b << 1; break;
        case 8: if (a < 0) at += 2; break;
        case 9: a = a > b ? a : b; break;
        case 10: if (a & 1) at = at / 2; break;
        default: a = ~a >> 1;
        }
    }
    out[threadIdx.x] = stack[top & 15] + 1000 * (top & 15);
}

struct Inner {
    short a;
    double b;
    char c[5];
};
struct Outer {
    Inner inner[2];
    u32 d;
    const int* pointer;
};
__device__ __noinline__ Outer change(Outer o, Inner i, u32 by) {
    o.inner[by & 1] = i;
    o.inner[~by & 1].b *= 2;
    o.inner[0].c[by % 5] += by;
    o.d += o.pointer[by % 4];
    return o;
}

// case structs <<<1, 64>>>(in i32 bits 4, out f64 64, out u32 64, struct i16 -3 f64 1.5 i8 1 i8 2 i8 3 i8 4 i8 5)
extern "C" __global__ void structs(const int* in, double* out, u32* sums, Inner given) {
    Outer o = {{given, {7, 0.25, {9, 8, 7, 6, 5}}}, threadIdx.x, in};
    for (u32 k = 0; k < threadIdx.x % 4; k++) o = change(o, {(short)k, k + 0.5, {1}}, threadIdx.x + k);
    out[threadIdx.x] = o.inner[0].a * o.inner[0].b - o.inner[1].a * o.inner[1].b;
    u32 sum = o.d;
    for (int k = 0; k < 5; k++) sum = sum * 31 + o.inner[0].c[k] * 7 + o.inner[1].c[k];
    sums[threadIdx.x] = sum;
}

// Globals that contain addresses of globals, constants of all kinds, and values from earlier blocks.
struct Node {
    int value;
    const Node* next;
};
__device__ const Node third = {30, nullptr};
__device__ const Node second = {20, &third};
__device__ Node first = {10, &second};
__constant__ short small[6] = {-1, 2, -3, 4, -5, 6};
__constant__ double2 pairs[2] = {{1.5, -2.5}, {1e300, 5e-324}};
__constant__ char text[] = "The quick brown fox";
__device__ u32 matrix[3][4] = {{1, 2, 3, 4}, {5, 6}, {7}};
__device__ u32* corner = &matrix[1][1];

// case globals <<<1, 32>>>(out i32 32, out f64 32)
extern "C" __global__ void globals(int* out, double* wide) {
    u32 t = threadIdx.x;
    int sum = 0;
    for (const Node* n = &first; n; n = n->next) sum = sum * 2 + n->value;
    const char* letters = text;
    out[t] = sum + small[t % 6] + letters[t % 19] + 1000 * matrix[t % 3][t % 4] + 100000 * corner[t % 6];
    wide[t] = (t & 1 ? pairs[t / 2 & 1].x : pairs[t / 2 & 1].y) * (t + 1);
}

template <typename T, int N> struct Polynomial {
    T c[N];
    __device__ T operator()(T x) const {
        T sum = c[N - 1];
        for (int k = N - 2; k >= 0; k--) sum = sum * x + c[k];
        return sum;
    }
};
template <typename F> __device__ long long integrate(F f, int from, int to) {
    long long sum = 0;
    for (int x = from; x < to; x++) sum += f(x);
    return sum;
}

// case templates <<<1, 64>>>(out i64 64, i32 5)
extern "C" __global__ void templates(long long* out, int k) {
    Polynomial<int, 4> p = {{1, -2, k, 3}};
    Polynomial<long long, 3> q = {{k, 1, 1}};
    int t = threadIdx.x;
    out[t] = integrate([&](int x) { return p(x) + t; }, -t, t) + integrate(q, 0, t);
}

// An odd block size, threads that exit early, and dynamic shared memory of several types.
// case odd_block <<<3, 37x1x3, 1332>>>(in u32 bits 333, out u32 333)
extern "C" __global__ void odd_block(const u32* in, u32* out) {
    extern __shared__ __align__(8) unsigned char raw[];
    u32* words = (u32*)raw;
    unsigned short* halves = (unsigned short*)(words + 111);
    unsigned char* bytes = (unsigned char*)(halves + 222);
    u32 t = threadIdx.z * 37 + threadIdx.x, i = blockIdx.x * 111 + t, x = in[i];
    words[t] = x, halves[t] = (unsigned short)(x >> 3), halves[111 + t] = (unsigned short)t, bytes[t] = (unsigned char)(x >> 11);
    __syncthreads();
    if (t % 10 == 9) {
        out[i] = 1;
        return;
    }
    __syncthreads();
    out[i] = words[110 - t] + halves[(t * 5) % 111] * 3 + halves[111 + (t * 7) % 111] + bytes[(t * 11) % 111];
}
