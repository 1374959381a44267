// Accesses out of bounds, each with a corrected version. Compiled with line information.

typedef unsigned int u32;

// Block of more than n threads: thread n writes one element past the end.
extern "C" __global__ void global_past_end(u32 *x, u32 n)
{
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) {
        x[i] = i;
    }
}

extern "C" __global__ void global_past_end_mended(u32 *x, u32 n)
{
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        x[i] = i;
    }
}

// Thread 0 reads the element before the first one.
extern "C" __global__ void global_before_start(u32 *x, u32 n)
{
    u32 i = threadIdx.x;
    if (i < n) {
        u32 left = x[(int)i - 1];
        x[i] = left + 1;
    }
}

extern "C" __global__ void global_before_start_mended(u32 *x, u32 n)
{
    u32 i = threadIdx.x;
    if (i < n) {
        u32 left = i > 0 ? x[i - 1] : 0;
        __syncthreads();
        x[i] = left + 1;
    }
}

// 40 words, 64 threads: thread 40 writes past the end.
extern "C" __global__ void shared_past_end(u32 *x, u32 n)
{
    __shared__ u32 tile[40];
    tile[threadIdx.x] = threadIdx.x;
    __syncthreads();
    if (threadIdx.x < n) {
        x[threadIdx.x] = tile[39 - threadIdx.x % 40];
    }
}

extern "C" __global__ void shared_past_end_mended(u32 *x, u32 n)
{
    __shared__ u32 tile[40];
    if (threadIdx.x < 40) {
        tile[threadIdx.x] = threadIdx.x;
    }
    __syncthreads();
    if (threadIdx.x < n) {
        x[threadIdx.x] = tile[39 - threadIdx.x % 40];
    }
}

// Thread 0 reads the word before the first one.
extern "C" __global__ void shared_before_start(u32 *x, u32 n)
{
    __shared__ u32 line[64];
    line[threadIdx.x] = threadIdx.x;
    __syncthreads();
    u32 left = line[(int)threadIdx.x - 1];
    if (threadIdx.x < n) {
        x[threadIdx.x] = left;
    }
}

extern "C" __global__ void shared_before_start_mended(u32 *x, u32 n)
{
    __shared__ u32 line[64];
    line[threadIdx.x] = threadIdx.x;
    __syncthreads();
    u32 left = threadIdx.x > 0 ? line[threadIdx.x - 1] : 0;
    if (threadIdx.x < n) {
        x[threadIdx.x] = left;
    }
}

// Writes n words of an array of eight words on the stack. More than eight are out of bounds.
extern "C" __global__ void local_past_end(u32 *x, u32 n)
{
    u32 digits[8];
    for (u32 i = 0; i < n; i++) {
        digits[i] = i * threadIdx.x;
    }
    x[threadIdx.x] = digits[x[0] % 8];
}

extern "C" __global__ void local_past_end_mended(u32 *x, u32 n)
{
    u32 digits[8];
    for (u32 i = 0; i < 8; i++) {
        digits[(i + n) % 8] = i * threadIdx.x;
    }
    u32 which = x[0] % 8;
    __syncthreads();
    x[threadIdx.x] = digits[which];
}

// Reads word n - 1 of an array on the stack. For n = 0 it is before the array.
extern "C" __global__ void local_before_start(u32 *x, u32 n)
{
    u32 digits[8];
    for (u32 i = 0; i < 8; i++) {
        digits[(i + x[0]) % 8] = i;
    }
    x[threadIdx.x] = digits[(int)n - 1];
}

extern "C" __global__ void local_before_start_mended(u32 *x, u32 n)
{
    u32 digits[8];
    for (u32 i = 0; i < 8; i++) {
        digits[(i + x[0]) % 8] = i;
    }
    __syncthreads();
    x[threadIdx.x] = digits[n % 8];
}

// Accesses a word at a misaligned address: byte 4 i + 2.
extern "C" __global__ void misaligned(u32 *x, u32 n)
{
    char *bytes = (char *)x;
    if (threadIdx.x + 1 < n) {
        *(u32 *)(bytes + 4 * threadIdx.x + 2) = threadIdx.x;
    }
}

extern "C" __global__ void misaligned_mended(u32 *x, u32 n)
{
    char *bytes = (char *)x;
    if (threadIdx.x + 1 < n) {
        *(u32 *)(bytes + 4 * threadIdx.x) = threadIdx.x;
    }
}
