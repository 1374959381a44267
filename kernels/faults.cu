// Kernels with intentional faults. On a GPU each one destroys the process's CUDA context, so tests that launch
// these on a GPU use a separate process.

// x[index] = value for any index, in bounds or not. One thread.
extern "C" __global__ void store_at(unsigned int *x, long long index, unsigned int value)
{
    x[index] = value;
}

// *out = x[index], the corresponding read. One thread.
extern "C" __global__ void load_at(const unsigned int *x, unsigned int *out, long long index)
{
    *out = x[index];
}

// An off-by-one bounds check. With n elements in x, thread n writes past the end.
// Launch more than n threads.
extern "C" __global__ void off_by_one(float *x, unsigned int n)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) {
        x[i] = (float)i;
    }
}

// A 4-byte store at any byte offset. It is misaligned unless the offset is a multiple of 4. One thread.
extern "C" __global__ void misaligned_store(unsigned char *x, unsigned long long offset, unsigned int value)
{
    *(unsigned int *)(x + offset) = value;
}

// A store through a null pointer. One thread.
extern "C" __global__ void null_store()
{
    *(volatile unsigned int *)nullptr = 1;
}

// Every thread stores to shared[index]; the block owns 32 words of it.
extern "C" __global__ void shared_store_at(unsigned int *out, unsigned int index)
{
    __shared__ unsigned int tile[32];
    volatile unsigned int *words = tile;
    words[index] = threadIdx.x;
    __syncthreads();
    out[0] = words[index];
}

// Thread `victim` of the grid executes trap; the others store their index.
extern "C" __global__ void trap_at(unsigned int *x, unsigned int victim, unsigned int n)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == victim) {
        __trap();
    }
    if (i < n) {
        x[i] = i;
    }
}

// Asserts that every x[i] is below the limit.
extern "C" __global__ void assert_below(const unsigned int *x, unsigned int limit, unsigned int n)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        assert(x[i] < limit);
    }
}

// An endless loop, for deadlines, and for ending a lease while a kernel runs. One thread.
extern "C" __global__ void run_forever(volatile unsigned int *x)
{
    for (;;) {
        *x = *x + 1;
    }
}

// Barrier 1 expects 64 threads, but the block has 32. The CPU device must report the waiting threads.
// A GPU would hang; do not launch it there.
extern "C" __global__ void stuck_barrier(unsigned int *x)
{
    asm volatile("bar.sync 1, 64;");
    x[threadIdx.x] = 1;
}
