// Matrix instructions of a warp: the wmma functions and mma.sync.
// compile nvrtc12.9-sm_80 nvrtc13.0-sm_90 nvcc13.0-sm_80 nvrtc13.0-sm_120
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <mma.h>
using namespace nvcuda;
typedef unsigned u32;

// Small integers with few bits: every sum is exact in any order.
// case wmma_half <<<2x2, 32>>>(in f16 below:16 1024, in f16 below:16 1024, out f32 1024, u32 32) ref wmma_half
extern "C" __global__ void wmma_half(const __half* a, const __half* b, float* c, u32 n) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.0f);
    u32 row = blockIdx.y * 16, column = blockIdx.x * 16;
    for (u32 k = 0; k < n; k += 16) {
        wmma::load_matrix_sync(fa, a + row * n + k, n);
        wmma::load_matrix_sync(fb, b + k * n + column, n);
        wmma::mma_sync(fc, fa, fb, fc);
    }
    wmma::store_matrix_sync(c + row * n + column, fc, n, wmma::mem_row_major);
}

// case wmma_others <<<1, 32>>>(in bf16 below:16 256, in bf16 below:16 256, in i8 below:100 256, in i8 below:100 256, out f32 256, out i32 256)
extern "C" __global__ void wmma_others(const __nv_bfloat16* a, const __nv_bfloat16* b, const signed char* x, const signed char* y, float* c, int* z) {
    wmma::fragment<wmma::matrix_a, 32, 8, 16, __nv_bfloat16, wmma::col_major> fa;
    wmma::fragment<wmma::matrix_b, 32, 8, 16, __nv_bfloat16, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 32, 8, 16, float> fc;
    wmma::fill_fragment(fc, 1.0f);
    // Overlapping columns: each starts eight values after the previous one.
    wmma::load_matrix_sync(fa, a, 8);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, 32, wmma::mem_col_major);
    wmma::fragment<wmma::matrix_a, 16, 16, 16, signed char, wmma::row_major> ia;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, signed char, wmma::col_major> ib;
    wmma::fragment<wmma::accumulator, 16, 16, 16, int> ic;
    wmma::fill_fragment(ic, -5);
    wmma::load_matrix_sync(ia, x, 16);
    wmma::load_matrix_sync(ib, y, 16);
    wmma::mma_sync(ic, ia, ib, ic);
    wmma::store_matrix_sync(z, ic, 16, wmma::mem_row_major);
}

// 16 x 8 x 16 with operands loaded by ldmatrix.
// case mma_sync <<<1, 32>>>(in f16 below:16 256, in f16 below:16 128, out f32 128)
extern "C" __global__ void mma_sync(const __half* a, const __half* b, float* c) {
    __shared__ __align__(16) __half sa[16 * 16], sb[8 * 16];
    u32 lane = threadIdx.x, ra[4], rb[2];
    for (u32 i = lane; i < 256; i += 32) sa[i] = a[i];
    for (u32 i = lane; i < 128; i += 32) sb[i] = b[i];
    __syncwarp();
    u32 pa = (u32)__cvta_generic_to_shared(&sa[lane % 16 * 16 + lane / 16 * 8]);
    u32 pb = (u32)__cvta_generic_to_shared(&sb[lane % 8 * 16 + lane / 8 % 2 * 8]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]) : "r"(pa));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(rb[0]), "=r"(rb[1]) : "r"(pb));
    float d[4] = {0.5f, 0.25f, -1, 2};
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
    u32 row = lane / 4, column = lane % 4 * 2;
    c[row * 8 + column] = d[0], c[row * 8 + column + 1] = d[1], c[(row + 8) * 8 + column] = d[2], c[(row + 8) * 8 + column + 1] = d[3];
}
