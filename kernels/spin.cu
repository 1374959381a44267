// Kernels that run for a controlled time.

// Steps a linear congruential generator `iterations` times from seed + i and stores the last value. Each
// step depends on the previous one, so the time grows with `iterations` and no compiler can shorten it.
// Any 1-D launch of at least n threads.
extern "C" __global__ void spin(unsigned int *out, unsigned int seed, unsigned int iterations, unsigned int n)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) {
        return;
    }
    unsigned int state = seed + i;
    for (unsigned int step = 0; step < iterations; step++) {
        state = state * 1664525u + 1013904223u;
    }
    out[i] = state;
}

// Waits until *flag is nonzero, or for `limit` reads, and stores the last value read in *seen.
// Tests use it to hold a stream. The limit ensures that a failing test ends. One thread.
extern "C" __global__ void wait_for_flag(const volatile unsigned int *flag, unsigned int *seen, unsigned int limit)
{
    unsigned int value = 0;
    for (unsigned int look = 0; look < limit && value == 0; look++) {
        value = *flag;
    }
    *seen = value;
}
