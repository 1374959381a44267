// Atomics of every type, shuffles, votes, reductions of a warp, bit tricks, wide integers.
extern "C" __global__ void atomics(int *i, unsigned *u, unsigned long long *l, float *f, double *d) {
    int t = threadIdx.x;
    atomicAdd(i, t); atomicSub(i + 1, t); atomicMin(i + 2, t); atomicMax(i + 3, t);
    atomicInc(u, 7); atomicDec(u + 1, 7); atomicAnd(u + 2, t); atomicOr(u + 3, t); atomicXor(u + 4, t);
    l[1] = atomicExch(l, t); l[2] = atomicCAS(l + 3, 1, t);
    atomicAdd(f, 1.5f); atomicAdd(d, 2.5);
    i[5] = atomicAdd_block(i + 4, 1); i[7] = atomicAdd_system(i + 6, 1);
    __threadfence(); __threadfence_block(); __threadfence_system();
}

extern "C" __global__ void lanes(unsigned *out) {
    unsigned x = out[threadIdx.x], mask = __activemask();
    x += __shfl_sync(~0u, x, 3) + __shfl_up_sync(~0u, x, 1) + __shfl_down_sync(~0u, x, 2);
    x += __shfl_xor_sync(mask, x, 16);
    int all;
    x += __match_any_sync(~0u, x) + __match_all_sync(~0u, x, &all) + all;
    x += __ballot_sync(~0u, x > 4) + __any_sync(~0u, x == 5) + __all_sync(~0u, x != 6);
    x += __reduce_add_sync(~0u, x) + __reduce_max_sync(~0u, x) + __reduce_xor_sync(~0u, x);
    __syncwarp();
    x += __syncthreads_count(x & 1) + __syncthreads_or(x & 2);
    out[threadIdx.x] = x + clock() + (unsigned)clock64();
}

extern "C" __global__ void bits(unsigned *out, unsigned long long *wide) {
    unsigned x = out[threadIdx.x];
    x = __brev(x) + __ffs(x) + __byte_perm(x, 7, 0x3210) + __funnelshift_l(x, 5, 3) + __sad(x, 5, 1);
    out[threadIdx.x] = __dp4a(x, 0x01020304u, 1u) + __vadd4(x, 5) + __umulhi(x, 77);
    wide[threadIdx.x] = __umul64hi(wide[0], wide[1]) + __popcll(wide[2]) + __clzll(wide[3]);
    unsigned __int128 product = (unsigned __int128)wide[4] * wide[5] + wide[6];
    wide[7] = (unsigned long long)(product >> 64);
}
