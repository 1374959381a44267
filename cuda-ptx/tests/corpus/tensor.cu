// Tensor cores, asynchronous copies, clusters, tensor maps: sm_90a.
extern "C" __global__ void fragments(const unsigned *a, const unsigned *b, float *c) {
    unsigned x[4], y[2];
    unsigned from = (unsigned)__cvta_generic_to_shared(a);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(from));
    y[0] = b[0], y[1] = b[1];
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                 "{%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    asm volatile("{ .reg .f32 f<8>; wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {f0,f1,f2,f3,f4,f5,f6,f7}, [%0], 16;\n"
                 "wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%0+64], {f0,f1,f2,f3,f4,f5,f6,f7}, 16; }" ::"l"(c));
}

struct alignas(64) Map { char opaque[128]; };

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128)
    load(const __grid_constant__ Map map, float *out) {
    __shared__ alignas(128) float tile[256];
    __shared__ alignas(8) unsigned long long barrier;
    unsigned bar = (unsigned)__cvta_generic_to_shared(&barrier);
    unsigned to = (unsigned)__cvta_generic_to_shared(tile);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar));
        asm volatile("fence.mbarrier_init.release.cluster;");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;" ::"r"(bar));
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(&map), "r"(0), "r"(8), "r"(bar) : "memory");
    }
    asm volatile("{\n.reg .pred P1;\nWAIT:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], 0;\n"
                 "@P1 bra DONE;\nbra WAIT;\nDONE:\n}" ::"r"(bar));
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;\ncp.async.commit_group;\ncp.async.wait_group 0;"
                 ::"r"(to), "l"(out));
    asm volatile("wgmma.fence.sync.aligned;");
    asm volatile("wgmma.wait_group.sync.aligned 0;");
    out[threadIdx.x] = tile[threadIdx.x] + rank;
}
