// Matrix products in the style of real kernels: wmma, and mma with ldmatrix and cp.async.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

constexpr int M = 64, N = 64, K = 128;

// One warp, C = A * B + C: A row-major, B column-major, C row-major.
template <int TM, int TN, int TK, class Factor, class Storage, class Sum, class LayoutA, class LayoutB, bool rows,
          bool columns>
__device__ void product(const Storage *a, const Storage *b, const Sum *c, Sum *out) {
    __shared__ Storage tile[TM * TK];
#pragma unroll 1
    for (int i = 0; i < M; i += TM) {
#pragma unroll 1
        for (int j = 0; j < N; j += TN) {
            wmma::fragment<wmma::accumulator, TM, TN, TK, Sum> sum;
            wmma::load_matrix_sync(sum, c + i * N + j, N, wmma::mem_row_major);
#pragma unroll 1
            for (int k = 0; k < K; k += TK) {
                for (int e = threadIdx.x; e < TM * TK; e += 32) {
                    int row = rows ? e / TK : e % TM, column = rows ? e % TK : e / TM;
                    tile[e] = a[(i + row) * K + k + column];
                }
                __syncwarp();
                wmma::fragment<wmma::matrix_a, TM, TN, TK, Factor, LayoutA> fa;
                wmma::fragment<wmma::matrix_b, TM, TN, TK, Factor, LayoutB> fb;
                wmma::load_matrix_sync(fa, tile, rows ? TK : TM);
                wmma::load_matrix_sync(fb, columns ? b + j * K + k : b + k * N + j, columns ? K : N);
                wmma::mma_sync(sum, fa, fb, sum);
                __syncwarp();
            }
            for (int e = 0; e < sum.num_elements; e++) sum.x[e] = sum.x[e] + sum.x[e];
            wmma::store_matrix_sync(out + j * M + i, sum, M, wmma::mem_col_major);
        }
    }
}

#define PRODUCT(name, m, n, k, factor, storage, sum, la, lb)                                              \
    extern "C" __global__ void name(const storage *a, const storage *b, const sum *c, sum *out) {         \
        constexpr bool row = true, col = false;                                                           \
        product<m, n, k, factor, storage, sum, wmma::la##_major, wmma::lb##_major, la, !lb>(a, b, c, out); \
    }

PRODUCT(wmma_f16_f32, 16, 16, 16, half, half, float, row, col)
PRODUCT(wmma_f16_f16, 16, 16, 16, half, half, half, col, row)
PRODUCT(wmma_f16_wide, 8, 32, 16, half, half, float, row, row)
PRODUCT(wmma_f16_tall, 32, 8, 16, half, half, half, col, col)
PRODUCT(wmma_bf16, 16, 16, 16, __nv_bfloat16, __nv_bfloat16, float, row, row)
PRODUCT(wmma_bf16_wide, 8, 32, 16, __nv_bfloat16, __nv_bfloat16, float, col, col)
PRODUCT(wmma_tf32, 16, 16, 8, wmma::precision::tf32, float, float, row, col)
PRODUCT(wmma_s8, 16, 16, 16, signed char, signed char, int, row, col)
PRODUCT(wmma_u8_tall, 32, 8, 16, unsigned char, unsigned char, int, col, row)
PRODUCT(wmma_f64, 8, 8, 4, double, double, double, row, col)

__device__ unsigned shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ void copy_16(void *to, const void *from, bool real) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(real ? 16 : 0));
}

// Tiles of 32 x 32 x 32 in three stages, four warps. Rows of shared tiles are swizzled. B is row-major.
extern "C" __global__ void __launch_bounds__(128)
    mma_pipelined(const half *a, const half *b, const float *c, float *out) {
    constexpr int STAGES = 3, T = 32;
    __shared__ __align__(16) half as[STAGES][T * T], bs[STAGES][T * T];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int row0 = blockIdx.x / (N / T) * T, column0 = blockIdx.x % (N / T) * T;
    auto at = [](int row, int chunk) { return row * T + (chunk ^ (row / 2 % 4)) * 8; };
    auto fetch = [&](int stage, int k0) {
        int row = threadIdx.x / 4, chunk = threadIdx.x % 4;
        bool real = k0 < K;
        copy_16(&as[stage][at(row, chunk)], real ? a + (row0 + row) * K + k0 + chunk * 8 : a, real);
        copy_16(&bs[stage][at(row, chunk)], real ? b + (k0 + row) * N + column0 + chunk * 8 : b, real);
        asm volatile("cp.async.commit_group;");
    };
    int i = warp / 2 * 16, j = warp % 2 * 16;
    float sum[2][4];
    for (int h = 0; h < 2; h++)
        for (int e = 0; e < 4; e++)
            sum[h][e] = c[(row0 + i + lane / 4 + e / 2 * 8) * N + column0 + j + h * 8 + lane % 4 * 2 + e % 2];
    for (int stage = 0; stage < STAGES - 1; stage++) fetch(stage, stage * T);
#pragma unroll 1
    for (int tile = 0; tile < K / T; tile++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
        __syncthreads();
        fetch((tile + STAGES - 1) % STAGES, (tile + STAGES - 1) * T);
        const half *ta = as[tile % STAGES], *tb = bs[tile % STAGES];
        for (int k = 0; k < T; k += 16) {
            unsigned x[4], y[4];
            unsigned from = shared_address(&ta[at(i + lane % 16, k / 8 + lane / 16)]);
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(from));
            from = shared_address(&tb[at(k + lane % 16, j / 8 + lane / 16)]);
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(y[0]), "=r"(y[1]), "=r"(y[2]), "=r"(y[3]) : "r"(from));
            for (int h = 0; h < 2; h++)
                asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                             "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                             : "+f"(sum[h][0]), "+f"(sum[h][1]), "+f"(sum[h][2]), "+f"(sum[h][3])
                             : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[2 * h]), "r"(y[2 * h + 1]));
        }
    }
    asm volatile("cp.async.wait_all;");
    for (int h = 0; h < 2; h++)
        for (int e = 0; e < 4; e++)
            out[(row0 + i + lane / 4 + e / 2 * 8) * N + column0 + j + h * 8 + lane % 4 * 2 + e % 2] = sum[h][e];
}
