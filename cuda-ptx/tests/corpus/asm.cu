// Inline assembly: its own scopes, registers and labels, repeated by inlining; odd spellings.
__device__ __forceinline__ unsigned spin(unsigned x, unsigned limit) {
    unsigned r;
    asm volatile("{\n\t"
                 ".reg .pred p, q;\n\t"
                 ".reg .b32 t<2>;\n\t"
                 "mov.u32 t0, %1;\n\t"
                 "LOOP:\n\t"
                 "setp.lt.u32 p|q, t0, %2;\n\t"
                 "@p add.u32 t0, t0, 0x10;\n\t"
                 "@p bra LOOP;\n\t"
                 "@!q bra.uni DONE;\n\t"
                 "DONE: mov.u32 %0, t0;\n\t"
                 "}" : "=r"(r) : "r"(x), "r"(limit));
    return r;
}

extern "C" __global__ void assembly(unsigned *out, unsigned long long *wide, float *f) {
    unsigned lane, low, high;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(wide[0]));
    asm("mov.b64 {%0, %1}, %2;" : "=r"(low), "=r"(high) : "l"(wide[1]));
    asm("/* } */ fma.rn.f32 %0, %0, 0f40000000, 0F3F800000; // {" : "+f"(f[0]));
    out[0] = spin(out[1], 100) + spin(out[2], 200) + lane + low + high;
    asm volatile("{ .reg .b32 %%sink; atom.global.add.u32 %%sink, [%0+-8], WARP_SZ; }" ::"l"(out + 4));
    asm volatile("bar.sync 1, 64;" ::: "memory");
    asm volatile("st.global.v2.u32 [%0 + 16], {%1, %2};" ::"l"(out), "r"(1 << 3), "n"(-5));
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; @p trap; }");
}
