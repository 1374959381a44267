// Stack memory whose size is known only at run time.
// For clang, because NVRTC has no alloca:
//
//     clang-22 -x cuda --cuda-device-only --cuda-gpu-arch=sm_75 --cuda-feature=+ptx73 -nocudainc -nocudalib -O2 \
//         -std=c++17 -S stack.cu

#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __noinline__ __attribute__((noinline))
#define __forceinline__ inline __attribute__((always_inline))
#define THREAD (__nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x())

typedef unsigned int u32;
typedef unsigned char u8;

// Each thread sorts its own number of values in its own memory.
extern "C" __global__ void sort_own(const u32 *x, const u32 *counts, u32 stride, u32 *y)
{
    const u32 thread = THREAD;
    const u32 n = counts[thread];
    u32 *own = (u32 *)__builtin_alloca(n * sizeof(u32));
    for (u32 i = 0; i < n; i++) {
        const u32 value = x[thread * stride + i];
        u32 at = i;
        for (; at > 0 && own[at - 1] > value; at--) {
            own[at] = own[at - 1];
        }
        own[at] = value;
    }
    for (u32 i = 0; i < n; i++) {
        y[thread * stride + i] = own[i];
    }
}

// Each level allocates bytes, lets the next one fill them, and adds them up.
__device__ __noinline__ u32 level(u32 depth, u8 *above, u32 bytes)
{
    for (u32 i = 0; i < bytes; i++) {
        above[i] = (u8)(depth + i);
    }
    if (depth == 0) {
        return 0;
    }
    const u32 n = depth * 7 % 29 + 1;
    u8 *own = (u8 *)__builtin_alloca(n);
    const u32 below = level(depth - 1, own, n);
    u32 sum = below;
    for (u32 i = 0; i < n; i++) {
        sum = sum * 31 + own[i];
    }
    return sum;
}

extern "C" __global__ void levels(const u32 *depths, u32 *y)
{
    const u32 thread = THREAD;
    u8 first[4];
    y[thread] = level(depths[thread], first, 4) + first[3];
}

// Allocations in a loop, which form a list.
struct Node {
    Node *next;
    u32 value;
};

extern "C" __global__ void list(const u32 *counts, u32 *y)
{
    const u32 thread = THREAD;
    Node *head = nullptr;
    for (u32 i = 0; i < counts[thread]; i++) {
        Node *node = (Node *)__builtin_alloca(sizeof(Node) + i % 5);
        node->next = head;
        node->value = thread * 1000 + i;
        head = node;
    }
    u32 sum = 0;
    for (; head; head = head->next) {
        sum = sum * 33 + head->value;
    }
    y[thread] = sum;
}

// Memory that a loop allocates repeatedly. It is inlined, and each iteration frees its own.
__device__ __forceinline__ u32 turn(u32 n, u32 i, u32 thread)
{
    volatile u32 *own = (volatile u32 *)__builtin_alloca(n * sizeof(u32));
    for (u32 j = 0; j < n; j++) {
        own[j] = i + j * thread;
    }
    u32 sum = 0;
    for (u32 j = n; j > 0; j--) {
        sum = sum * 5 + own[j - 1];
    }
    return sum;
}

extern "C" __global__ void turns(const u32 *sizes, u32 count, u32 *y)
{
    const u32 thread = THREAD;
    u32 sum = 0;
    for (u32 i = 0; i < count; i++) {
        sum = sum * 3 + turn((sizes[thread] + i) % 40 + 1, i, thread);
    }
    y[thread] = sum;
}
