// A kernel that runs for a given time.

// Runs for `nanoseconds` by the GPU's clock, which may tick only once in a microsecond. One thread then stores
// the elapsed time in *elapsed. Any launch: one warp in one block leaves nearly all of the GPU to others.
extern "C" __global__ void timed(unsigned long long *elapsed, unsigned int nanoseconds)
{
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < nanoseconds);
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        *elapsed = now - start;
    }
}
