// Misuse of device-side malloc and free, each with a corrected version. Compiled with line information.

typedef unsigned int u32;

// Reads memory after freeing it.
extern "C" __global__ void after_free(u32 *x, u32 n)
{
    if (threadIdx.x == 1) {
        volatile u32 *own = (volatile u32 *)malloc(16);
        own[2] = n;
        free((void *)own);
        x[0] = own[2];
    }
}

extern "C" __global__ void after_free_mended(u32 *x, u32 n)
{
    if (threadIdx.x == 1) {
        volatile u32 *own = (volatile u32 *)malloc(16);
        own[2] = n;
        x[0] = own[2];
        free((void *)own);
    }
}

// Both paths free the memory.
extern "C" __global__ void double_free(u32 *x, u32 n)
{
    u32 *own = (u32 *)malloc(64);
    own[0] = threadIdx.x;
    x[threadIdx.x] = own[0];
    if (threadIdx.x == n) {
        free(own);
    }
    free(own);
}

extern "C" __global__ void double_free_mended(u32 *x, u32 n)
{
    u32 *own = (u32 *)malloc(64);
    own[0] = threadIdx.x + n;
    x[threadIdx.x] = own[0];
    free(own);
}

// Frees an address four bytes past the one that malloc returned.
extern "C" __global__ void free_inside(u32 *x, u32 n)
{
    u32 *own = (u32 *)malloc(64);
    own[0] = n;
    x[0] = *own++;
    free(own);
}

extern "C" __global__ void free_inside_mended(u32 *x, u32 n)
{
    u32 *own = (u32 *)malloc(64);
    own[0] = n;
    x[threadIdx.x] = own[0];
    free(own);
}

// Frees memory that the host allocated.
extern "C" __global__ void free_of_hosts(u32 *x, u32 n)
{
    x[0] = n;
    free(x);
}

extern "C" __global__ void free_of_hosts_mended(u32 *x, u32 n)
{
    x[threadIdx.x] = n;
}
