// Shared, constant, local and global memory; initializers of every kind.
__constant__ float taps[5] = {0.1f, 0.2f, 0.4f, 0.2f, 0.1f};
__constant__ unsigned char rows[3][4] = {{1, 2, 3}, {4}, {5, 6, 7, 8}};
__device__ int counter = 42;
__device__ int *pointer = &counter;
__device__ const char *words[] = {"one", "two", "three"};
struct Node { int key; Node *next; double weight; };
__device__ Node second = {2, nullptr, 0.5};
__device__ Node first = {1, &second, -1.5};
__device__ unsigned long long big[1024];

extern __shared__ float dynamic[];

extern "C" __global__ void stencil(const float *in, float *out, int n) {
    __shared__ float tile[128 + 4];
    int i = blockIdx.x * 128 + threadIdx.x;
    tile[threadIdx.x + 2] = i < n ? in[i] : 0.0f;
    if (threadIdx.x < 2) tile[threadIdx.x] = tile[threadIdx.x + 130] = 0.0f;
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < 5; k++) sum += taps[k] * tile[threadIdx.x + k];
    if (i < n) out[i] = sum;
}

extern "C" __global__ void walk(double *out, char *text) {
    double sum = 0;
    for (Node *n = &first; n != nullptr; n = n->next) sum += n->weight * n->key;
    out[0] = sum + *pointer + rows[threadIdx.x % 3][1] + big[threadIdx.x];
    text[threadIdx.x] = words[threadIdx.x % 3][0];
}

extern "C" __global__ void local(int *out, int n) {
    int history[32];
    for (int i = 0; i < n; i++) history[i & 31] = out[i] + (int)dynamic[i];
    out[threadIdx.x] = history[out[threadIdx.x] & 31];
}
