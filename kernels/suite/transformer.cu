// Parts of a transformer's layers.
// compile nvrtc12.9-sm_80 nvrtc13.0-sm_90 nvcc13.0-sm_90-fast clang19-sm_80 nvrtc12.4-sm_75-fast nvrtc13.0-sm_120
#include <cuda_fp16.h>
#include <cuda_bf16.h>
typedef unsigned u32;
#define INF __int_as_float(0x7f800000)

__device__ float block_sum(float x, float* shared) {
    for (u32 step = 16; step; step /= 2) x += __shfl_xor_sync(~0u, x, step);
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0;
    for (u32 w = 0; w < blockDim.x / 32; w++) x += shared[w];
    return x;
}

// A single pass: a running maximum, and a sum that is rescaled when the maximum grows. One row per warp.
// case softmax_online <<<4, 64>>>(in f32 unit 1600, out f32 1600, u32 200)
extern "C" __global__ void softmax_online(const float* in, float* out, u32 columns) {
    u32 row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    const float* x = in + row * columns;
    float most = -INF, sum = 0;
    for (u32 c = lane; c < columns; c += 32) {
        float v = 8 * x[c], larger = fmaxf(most, v);
        sum = fmaf(sum, expf(most - larger), expf(v - larger));
        most = larger;
    }
    for (u32 step = 16; step; step /= 2) {
        float other_most = __shfl_xor_sync(~0u, most, step), other_sum = __shfl_xor_sync(~0u, sum, step);
        float larger = fmaxf(most, other_most);
        sum = fmaf(sum, expf(most - larger), other_sum * expf(other_most - larger));
        most = larger;
    }
    for (u32 c = lane; c < columns; c += 32) out[row * columns + c] = expf(8 * x[c] - most) / sum;
}

// case layernorm <<<5, 64>>>(in f32 unit 1000, in f32 unit 200, in f32 unit 200, out f32 1000, u32 200, f32 1e-5)
extern "C" __global__ void layernorm(const float* in, const float* gain, const float* bias, float* out, u32 columns, float epsilon) {
    __shared__ float shared[32];
    const float* x = in + blockIdx.x * columns;
    float sum = 0, squares = 0;
    for (u32 c = threadIdx.x; c < columns; c += blockDim.x) sum += x[c];
    float mean = block_sum(sum, shared) / columns;
    for (u32 c = threadIdx.x; c < columns; c += blockDim.x) squares = fmaf(x[c] - mean, x[c] - mean, squares);
    float scale = rsqrtf(block_sum(squares, shared) / columns + epsilon);
    for (u32 c = threadIdx.x; c < columns; c += blockDim.x)
        out[blockIdx.x * columns + c] = fmaf((x[c] - mean) * scale, gain[c], bias[c]);
}

// case rmsnorm <<<4, 32>>>(in bf16 unit 512, in bf16 unit 128, out bf16 512, u32 128)
extern "C" __global__ void rmsnorm(const __nv_bfloat162* in, const __nv_bfloat162* gain, __nv_bfloat162* out, u32 columns) {
    u32 pairs = columns / 2;
    const __nv_bfloat162* x = in + blockIdx.x * pairs;
    float squares = 0;
    for (u32 c = threadIdx.x; c < pairs; c += 32) {
        float2 v = __bfloat1622float2(x[c]);
        squares += v.x * v.x + v.y * v.y;
    }
    for (u32 step = 16; step; step /= 2) squares += __shfl_xor_sync(~0u, squares, step);
    float scale = rsqrtf(squares / columns + 1e-6f);
    for (u32 c = threadIdx.x; c < pairs; c += 32) {
        float2 v = __bfloat1622float2(x[c]), g = __bfloat1622float2(gain[c]);
        out[blockIdx.x * pairs + c] = __floats2bfloat162_rn(v.x * scale * g.x, v.y * scale * g.y);
    }
}

// Rotary position embedding of heads of 64, half precision.
// case rope <<<3x4, 32>>>(inout f16 unit 768, u32 4, u32 100)
extern "C" __global__ void rope(__half* q, u32 heads, u32 position) {
    u32 pair = threadIdx.x, base = (blockIdx.x * heads + blockIdx.y) * 64;
    float frequency = powf(10000.0f, -2.0f * pair / 64), sine, cosine;
    sincosf((position + blockIdx.x) * frequency, &sine, &cosine);
    float a = __half2float(q[base + pair]), b = __half2float(q[base + pair + 32]);
    q[base + pair] = __float2half(a * cosine - b * sine);
    q[base + pair + 32] = __float2half(a * sine + b * cosine);
}

// case activations <<<4, 128>>>(in f32 lin:-6:6 512, out f32 512, out f32 512, out f32 512)
extern "C" __global__ void activations(const float* in, float* gelu, float* gelu_tanh, float* silu) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = in[i];
    gelu[i] = 0.5f * x * (1 + erff(x * 0.70710678f));
    gelu_tanh[i] = 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    silu[i] = x / (1 + expf(-x));
}

// Attention of one head for a tile of 16 queries against 64 keys of 32 dimensions: scores in shared memory.
// case attention <<<1, 128>>>(in f32 unit 512, in f32 unit 2048, in f32 unit 2048, out f32 512)
extern "C" __global__ void attention(const float* q, const float* k, const float* v, float* out) {
    __shared__ float keys[64][33], scores[16][64];
    u32 t = threadIdx.x;
    for (u32 i = t; i < 2048; i += 128) keys[i / 32][i % 32] = k[i];
    __syncthreads();
    for (u32 i = t; i < 1024; i += 128) {
        u32 query = i / 64, key = i % 64;
        float sum = 0;
        for (u32 d = 0; d < 32; d++) sum = fmaf(q[query * 32 + d], keys[key][d], sum);
        scores[query][key] = key <= query + 48 ? sum * 0.17677669f : -INF;
    }
    __syncthreads();
    for (u32 query = t / 32; query < 16; query += 4) {
        u32 lane = t % 32;
        float a = scores[query][lane], b = scores[query][lane + 32], most = fmaxf(a, b);
        for (u32 step = 16; step; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
        a = expf(a - most), b = expf(b - most);
        float sum = a + b;
        for (u32 step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
        scores[query][lane] = a / sum, scores[query][lane + 32] = b / sum;
    }
    __syncthreads();
    for (u32 i = t; i < 512; i += 128) {
        float sum = 0;
        for (u32 key = 0; key < 64; key++) sum = fmaf(scores[i / 32][key], v[key * 32 + i % 32], sum);
        out[i] = sum;
    }
}

// New keys are written to the pages of the cache by a table, sixteen bytes at a time.
// case kv_update <<<6, 16>>>(in f16 unit 768, in u32 perm 8, inout f16 zero 4096, u32 3, u32 4)
extern "C" __global__ void kv_update(const __half* fresh, const u32* pages, __half* cache, u32 position, u32 page_tokens) {
    u32 token = position + blockIdx.x, width = 128;
    u32 slot = pages[token / page_tokens] * page_tokens + token % page_tokens;
    const uint4* from = (const uint4*)(fresh + blockIdx.x * width);
    uint4* to = (uint4*)(cache + slot * width);
    to[threadIdx.x] = from[threadIdx.x];
}

// The 8 largest of each row, by repeated argmax over the rest. Ties go to the lower index.
// case top_k <<<4, 32>>>(in f32 below:50 400, out f32 32, out u32 32, u32 100) ref top_k
extern "C" __global__ void top_k(const float* in, float* values, u32* indices, u32 columns) {
    __shared__ float row[128];
    u32 lane = threadIdx.x;
    for (u32 c = lane; c < columns; c += 32) row[c] = in[blockIdx.x * columns + c];
    __syncwarp();
    for (u32 k = 0; k < 8; k++) {
        float best = -INF;
        u32 at = ~0u;
        for (u32 c = lane; c < columns; c += 32)
            if (row[c] > best) best = row[c], at = c;
        for (u32 step = 16; step; step /= 2) {
            float other = __shfl_xor_sync(~0u, best, step);
            u32 other_at = __shfl_xor_sync(~0u, at, step);
            if (other > best || (other == best && other_at < at)) best = other, at = other_at;
        }
        if (lane == 0) {
            values[blockIdx.x * 8 + k] = best;
            indices[blockIdx.x * 8 + k] = at;
            row[at] = -INF;
        }
        __syncwarp();
    }
}

// case embedding <<<12, 32>>>(in u32 below:20 12, in bf16 unit 2560, in bf16 unit 1536, out bf16 1536)
extern "C" __global__ void embedding(const u32* tokens, const __nv_bfloat16* table, const __nv_bfloat16* positions, __nv_bfloat16* out) {
    const __nv_bfloat162* row = (const __nv_bfloat162*)(table + tokens[blockIdx.x] * 128);
    const __nv_bfloat162* position = (const __nv_bfloat162*)(positions + blockIdx.x * 128);
    for (u32 i = threadIdx.x; i < 64; i += 32) ((__nv_bfloat162*)out)[blockIdx.x * 64 + i] = __hadd2(row[i], position[i]);
}

// Symmetric int8 quantisation of each row, then a product of int8 by dp4a, scaled back.
// case quantized_gemv <<<8, 32>>>(in f32 unit 1024, in u32 bits 32, out f32 8, out i32 8)
extern "C" __global__ void quantized_gemv(const float* weights, const int* x, float* out, int* sums) {
    float4 w = ((const float4*)weights)[blockIdx.x * 32 + threadIdx.x];
    float most = fmaxf(fmaxf(fabsf(w.x), fabsf(w.y)), fmaxf(fabsf(w.z), fabsf(w.w)));
    for (u32 step = 16; step; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
    float scale = __fdiv_rn(127.0f, most);
    int packed = (__float2int_rn(w.x * scale) & 255) | (__float2int_rn(w.y * scale) & 255) << 8 |
                 (__float2int_rn(w.z * scale) & 255) << 16 | __float2int_rn(w.w * scale) << 24;
    int sum = __dp4a(packed, x[threadIdx.x], 0);
    for (u32 step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = sum;
        out[blockIdx.x] = __fdiv_rn((float)sum, scale);
    }
}

// The driver fuses products and sums that PTX leaves without a rounding; assembled by `ptxas -fmad=false`, every bit
// is the same on the H200.
// case cross_entropy <<<6, 32>>>(in f32 unit 600, in u32 below:100 6, out f32 6, out f32 600, u32 100) ulp 1
extern "C" __global__ void cross_entropy(const float* logits, const u32* labels, float* loss, float* gradient, u32 classes) {
    const float* x = logits + blockIdx.x * classes;
    float sum = 0;
    for (u32 c = threadIdx.x; c < classes; c += 32) sum += expf(x[c]);
    for (u32 step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    for (u32 c = threadIdx.x; c < classes; c += 32)
        gradient[blockIdx.x * classes + c] = expf(x[c]) / sum - (c == labels[blockIdx.x] ? 1.0f : 0.0f);
    if (threadIdx.x == 0) loss[blockIdx.x] = logf(sum) - x[labels[blockIdx.x]];
}
