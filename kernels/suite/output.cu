// printf, assert, and the device's heap.
// compile nvrtc12.9-sm_80 nvrtc13.0-sm_90 clang19-sm_80 nvcc13.0-sm_75 nvrtc13.0-sm_120
#if !defined(__CUDACC_RTC__)
#include <cstdio>
#include <cassert>
#endif
typedef unsigned u32;
typedef unsigned long long u64;

// case formats <<<1, 4>>>(in f64 unit 4) prints
extern "C" __global__ void formats(const double* in) {
    int t = threadIdx.x;
    double x = in[t];
    printf("thread %d of %u: %5d|%-5d|%05d|%+d|%x|%#X|%o\n", t, blockDim.x, t * 7, t * 7, t * 7, t, t * 99, t * 99, t * 99);
    printf("thread %d: %f %.3f %10.2f %-10.1f| %e %G %g %a\n", t, x, x, x, x, x, x, x * 1e-7, x);
    printf("thread %d: %c%c %s %5s|%-5s| %.2s %%\n", t, 'a' + t, 65, "text", "ab", "cd", "truncated");
    printf("thread %d: %lld %llu %llx %hd %ld\n", t, -1234567890123LL, 12345678901234567890ull, 0xFEDCBA9876543210ull, (short)-t, -5L);
}

// Asserts that hold.
// case asserts <<<2, 64>>>(in u32 below:100 128, out u32 128, u32 100)
extern "C" __global__ void asserts(const u32* in, u32* out, u32 limit) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(in[i] < limit);
    assert(blockDim.x == 64 && "as launched");
    out[i] = in[i] * 2;
}

// Lists on the device's heap, created and freed by each thread.
struct Item {
    u32 value;
    Item* next;
};

// case heap <<<2, 32>>>(in u32 below:20 64, out u32 64) ref heap
extern "C" __global__ void heap(const u32* in, u32* out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, sum = 0;
    Item* list = nullptr;
    for (u32 k = 0; k < in[i]; k++) {
        Item* item = (Item*)malloc(sizeof(Item));
        if (!item) return;
        item->value = k * k, item->next = list;
        list = item;
    }
    while (list) {
        Item* next = list->next;
        sum = sum * 3 + list->value;
        free(list);
        list = next;
    }
#if defined(__clang__) // it has no operator new for devices
#define NEW(T, n) (T*)malloc(sizeof(T) * (n))
#define DELETE(p) free(p)
#else
#define NEW(T, n) new T[n]
#define DELETE(p) delete[] p
#endif
    u64* block = NEW(u64, 4 + i % 3);
    block[3] = sum;
    out[i] = (u32)block[3];
    DELETE(block);
}
