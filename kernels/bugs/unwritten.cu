// Reads of memory that was never written, each with a corrected version. Compiled with line information.

typedef unsigned int u32;

// n words from malloc. Only the even ones are written.
extern "C" __global__ void unwritten_global(u32 *x, u32 n)
{
    if (threadIdx.x == 0) {
        u32 *own = (u32 *)malloc(4 * n);
        for (u32 i = 0; i < n; i += 2) {
            own[i] = i;
        }
        u32 sum = 0;
        for (u32 i = 0; i < n; i++) {
            sum += own[i];
        }
        x[0] = sum;
        free(own);
    }
}

extern "C" __global__ void unwritten_global_mended(u32 *x, u32 n)
{
    if (threadIdx.x == 0) {
        u32 *own = (u32 *)malloc(4 * n);
        for (u32 i = 0; i < n; i++) {
            own[i] = i;
        }
        u32 sum = 0;
        for (u32 i = 0; i < n; i++) {
            sum += own[i];
        }
        x[0] = sum;
        free(own);
    }
}

// The last block of x is short: the rest of its tile is not loaded, but is summed.
extern "C" __global__ void unwritten_shared(u32 *x, u32 n)
{
    __shared__ u32 tile[64];
    u32 i = blockIdx.x * 64 + threadIdx.x;
    if (i < n) {
        tile[threadIdx.x] = x[i];
    }
    __syncthreads();
    u32 sum = tile[threadIdx.x] + tile[63 - threadIdx.x];
    if (i < n) {
        x[i] = sum;
    }
}

extern "C" __global__ void unwritten_shared_mended(u32 *x, u32 n)
{
    __shared__ u32 tile[64];
    u32 i = blockIdx.x * 64 + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0;
    __syncthreads();
    u32 sum = tile[threadIdx.x] + tile[63 - threadIdx.x];
    if (i < n) {
        x[i] = sum;
    }
}

// The call does not write all words, but the caller reads all of them.
__device__ __noinline__ void first_digits(u32 *digits, u32 of, u32 count)
{
    for (u32 i = 0; i < count; i++) {
        digits[i] = of % 10;
        of /= 10;
    }
}

extern "C" __global__ void unwritten_local(u32 *x, u32 n)
{
    u32 digits[8];
    first_digits(digits, threadIdx.x * 12345, n);
    u32 sum = 0;
    for (u32 i = 0; i < 8; i++) {
        sum += digits[i];
    }
    x[threadIdx.x] = sum;
}

extern "C" __global__ void unwritten_local_mended(u32 *x, u32 n)
{
    u32 digits[8];
    first_digits(digits, threadIdx.x * 12345, 8);
    u32 sum = 0;
    for (u32 i = 0; i < 8; i++) {
        sum += i < n ? digits[i] : 0;
    }
    x[threadIdx.x] = sum;
}
