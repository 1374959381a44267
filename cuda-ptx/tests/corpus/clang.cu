// For clang, without headers: its names and spellings differ from those of NVRTC.
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __constant__ __attribute__((constant))
#define __shared__ __attribute__((shared))
struct __attribute__((packed)) Packed { char tag; int *to; short tail; };
__device__ int target[4] = {1, 2, 3, 4};
struct Loose { char tag; int *to; short tail; };
__device__ Loose loose = {7, &target[2], 9};
__constant__ __device__ float weights[2][2] = {{1.0f, 2.0f}, {3.0f, 4.0f}};
struct Node { int key; Node *next; };
__device__ Node last = {1, 0};
__device__ Node ring = {2, &last};

__device__ __attribute__((noinline)) int helper(int x, Packed p) { return x + p.tail + *p.to; }
extern "C" __device__ int vprintf(const char *, const char *);

extern "C" __global__ void mixed(int *out, float *f, Packed p, long long wide) {
    static __shared__ int tile[64];
    int lane = __nvvm_read_ptx_sreg_tid_x();
    tile[lane] = helper(out[lane], p) + *loose.to;
    __syncthreads();
    f[lane] = weights[lane & 1][1] * (float)tile[63 - lane] + (float)wide + (float)ring.next->key;
    switch (out[0]) {
    case 1: out[1] = 4; break;
    case 2: f[2] = 1.0f; break;
    case 3: out[7] = lane; break;
    case 4: f[9] = 2.0f; break;
    case 5: out[2] = 8; break;
    }
    vprintf("%d\n", (const char *)&lane);
}
