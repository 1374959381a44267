// One step of a transformer: the next symbol of each sequence. The shapes are those of model.rs and network.py.
//
// The position of the step is read from device memory, so the launches of all steps are the same, and a recorded step can
// be replayed. `choose` advances the position. A step behind the last position does nothing.
//
// Every sum has an order that depends only on the launch shape, and every operation is an IEEE operation that rounds once:
// fmaf where a product is added, `exponential` instead of expf. So the logits have the same bits on a GPU and on the CPU
// device, and the chosen symbols are the same.
//
// Weights are f16 and are converted to float exactly. A matrix has one row for each output. In the kernels of matrices, a
// warp computes one output: blocks of 128 threads, a grid of (outputs / 4, sequences).

#define SYMBOLS 96
#define CONTEXT 256
#define WIDTH 128
#define HEADS 4
#define HEAD 32 // the channels of a head, and the threads of a warp
#define HIDDEN 512
#define WARPS 4 // of a block

typedef unsigned short f16;

__device__ float to_float(f16 bits)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

// Four adjacent weights, the first of which has an index that is a multiple of 4.
__device__ float4 weights(const f16 *w, unsigned int four)
{
    ushort4 bits = reinterpret_cast<const ushort4 *>(w)[four];
    return make_float4(to_float(bits.x), to_float(bits.y), to_float(bits.z), to_float(bits.w));
}

__device__ float add_products(float sum, float4 a, float4 b)
{
    return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

// The sum of a warp's values, with the same bits in each of its threads: addition is commutative.
__device__ float warp_sum(float value)
{
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, lanes);
    }
    return value;
}

__device__ float warp_max(float value)
{
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, lanes));
    }
    return value;
}

// e^x to about one unit of the last bit, by the polynomial of Cephes. x is limited to where the result is normal.
__device__ float exponential(float x)
{
    x = fminf(fmaxf(x, -87.0f), 88.0f);
    float n = rintf(x * 1.44269504f);
    float r = fmaf(n, 2.12194440e-4f, fmaf(n, -0.693359375f, x));
    float p = 1.9875691500e-4f;
    p = fmaf(p, r, 1.3981999507e-3f);
    p = fmaf(p, r, 8.3334519073e-3f);
    p = fmaf(p, r, 4.1665795894e-2f);
    p = fmaf(p, r, 1.6666665459e-1f);
    p = fmaf(p, r, 5.0000001201e-1f);
    p = fmaf(p * r, r, r) + 1.0f;
    return p * __int_as_float(((int)n + 127) << 23);
}

// RMSNorm of WIDTH channels, four for each thread of a warp. It is so little work that each warp of the next matrix
// repeats it, instead of waiting for a launch of its own.
__device__ float4 normalized(const float *x, const f16 *gain, unsigned int lane)
{
    float4 v = reinterpret_cast<const float4 *>(x)[lane];
    float mean = warp_sum(add_products(0.0f, v, v)) * (1.0f / WIDTH);
    float scale = 1.0f / sqrtf(mean + 1e-5f);
    float4 g = weights(gain, lane);
    return make_float4(v.x * scale * g.x, v.y * scale * g.y, v.z * scale * g.z, v.w * scale * g.w);
}

// The output that this warp computes, in a grid of (outputs / WARPS, sequences).
__device__ unsigned int output_of_warp()
{
    return blockIdx.x * WARPS + threadIdx.x / 32;
}

// x = embedding[token] + positions[position], where the token is that of the sequence at the position. Blocks of WIDTH
// threads, a grid of (1, sequences).
extern "C" __global__ void embed(const unsigned int *__restrict__ tokens, const unsigned int *__restrict__ position,
                                 const f16 *__restrict__ embedding, const f16 *__restrict__ positions,
                                 float *__restrict__ x)
{
    unsigned int channel = threadIdx.x, sequence = blockIdx.y, at = *position;
    if (at >= CONTEXT) {
        return;
    }
    unsigned int token = tokens[sequence * CONTEXT + at];
    x[sequence * WIDTH + channel] = to_float(embedding[token * WIDTH + channel]) + to_float(positions[at * WIDTH + channel]);
}

// Queries, keys and values of the position: w . norm(x). Keys and values go to the cache. The keys of a channel are
// adjacent for adjacent positions, and the values of a position for adjacent channels, as `attend` reads them.
extern "C" __global__ void project_qkv(const float *__restrict__ x, const f16 *__restrict__ gain,
                                       const f16 *__restrict__ w, const unsigned int *__restrict__ position,
                                       float *__restrict__ queries, float *__restrict__ keys,
                                       float *__restrict__ values)
{
    unsigned int row = output_of_warp(), lane = threadIdx.x % 32, sequence = blockIdx.y, at = *position;
    if (at >= CONTEXT) {
        return;
    }
    float4 in = normalized(x + sequence * WIDTH, gain, lane);
    float sum = warp_sum(add_products(0.0f, in, weights(w + row * WIDTH, lane)));
    if (lane != 0) {
        return;
    }
    unsigned int channel = row % WIDTH, here = sequence * WIDTH + channel;
    if (row < WIDTH) {
        queries[here] = sum;
    } else if (row < 2 * WIDTH) {
        keys[(size_t)here * CONTEXT + at] = sum;
    } else {
        unsigned int head = sequence * HEADS + channel / HEAD;
        values[((size_t)head * CONTEXT + at) * HEAD + channel % HEAD] = sum;
    }
}

// Attention of the query at the position to all positions up to it. Blocks of 128 threads, a grid of (HEADS, sequences).
extern "C" __global__ void attend(const float *__restrict__ queries, const float *__restrict__ keys,
                                  const float *__restrict__ values, const unsigned int *__restrict__ position,
                                  float *__restrict__ mixed)
{
    __shared__ float query[HEAD], scores[CONTEXT], largest[WARPS], sums[WARPS], parts[WARPS][HEAD];
    unsigned int t = threadIdx.x, lane = t % 32, warp = t / 32, at = *position;
    if (at >= CONTEXT) {
        return;
    }
    unsigned int head = blockIdx.y * HEADS + blockIdx.x;
    keys += (size_t)head * HEAD * CONTEXT;
    values += (size_t)head * CONTEXT * HEAD;
    if (t < HEAD) {
        query[t] = queries[head * HEAD + t] * 0.17677669f; // 1 / sqrt(HEAD)
    }
    __syncthreads();

    // A thread for each position.
    float most = __int_as_float(0xff800000); // minus infinity
    for (unsigned int i = t; i <= at; i += 32 * WARPS) {
        float score = 0.0f;
#pragma unroll
        for (unsigned int channel = 0; channel < HEAD; channel++) {
            score = fmaf(query[channel], keys[channel * CONTEXT + i], score);
        }
        scores[i] = score;
        most = fmaxf(most, score);
    }
    most = warp_max(most);
    if (lane == 0) {
        largest[warp] = most;
    }
    __syncthreads();
    most = fmaxf(fmaxf(largest[0], largest[1]), fmaxf(largest[2], largest[3]));

    float sum = 0.0f;
    for (unsigned int i = t; i <= at; i += 32 * WARPS) {
        float e = exponential(scores[i] - most);
        scores[i] = e;
        sum += e;
    }
    sum = warp_sum(sum);
    if (lane == 0) {
        sums[warp] = sum;
    }
    __syncthreads();

    // A thread for each channel, and a warp for every fourth position.
    float part = 0.0f;
#pragma unroll 8
    for (unsigned int i = warp; i <= at; i += WARPS) {
        part = fmaf(scores[i], values[i * HEAD + lane], part);
    }
    parts[warp][lane] = part;
    __syncthreads();
    if (t < HEAD) {
        float total = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        mixed[head * HEAD + t] = ((parts[0][t] + parts[1][t]) + (parts[2][t] + parts[3][t])) / total;
    }
}

// x += w . in, of `inputs` inputs, a multiple of 128.
extern "C" __global__ void project_add(const float *__restrict__ in, const f16 *__restrict__ w, float *__restrict__ x,
                                       unsigned int inputs)
{
    unsigned int row = output_of_warp(), lane = threadIdx.x % 32, sequence = blockIdx.y;
    const float4 *fours = reinterpret_cast<const float4 *>(in + sequence * inputs);
    float sum = 0.0f;
#pragma unroll 4
    for (unsigned int four = lane; four < inputs / 4; four += 32) {
        sum = add_products(sum, fours[four], weights(w + row * inputs, four));
    }
    sum = warp_sum(sum);
    if (lane == 0) {
        x[sequence * WIDTH + row] += sum;
    }
}

// hidden = silu(w . norm(x)), where silu(y) = y / (1 + e^-y).
extern "C" __global__ void expand(const float *__restrict__ x, const f16 *__restrict__ gain, const f16 *__restrict__ w,
                                  float *__restrict__ hidden)
{
    unsigned int row = output_of_warp(), lane = threadIdx.x % 32, sequence = blockIdx.y;
    float4 in = normalized(x + sequence * WIDTH, gain, lane);
    float sum = warp_sum(add_products(0.0f, in, weights(w + row * WIDTH, lane)));
    if (lane == 0) {
        hidden[sequence * HIDDEN + row] = sum / (1.0f + exponential(-sum));
    }
}

// logits = w . norm(x)
extern "C" __global__ void project_logits(const float *__restrict__ x, const f16 *__restrict__ gain,
                                          const f16 *__restrict__ w, float *__restrict__ logits)
{
    unsigned int row = output_of_warp(), lane = threadIdx.x % 32, sequence = blockIdx.y;
    float4 in = normalized(x + sequence * WIDTH, gain, lane);
    float sum = warp_sum(add_products(0.0f, in, weights(w + row * WIDTH, lane)));
    if (lane == 0) {
        logits[sequence * SYMBOLS + row] = sum;
    }
}

// Writes the symbol with the largest logit behind the position, or the lowest of equal ones, unless the prompt has a
// symbol there. Then advances the position. One block of 128 threads, because the position is read before it is written.
extern "C" __global__ void choose(const float *__restrict__ logits, const unsigned int *__restrict__ prompt_lengths,
                                  unsigned int *__restrict__ tokens, unsigned int *position, unsigned int sequences)
{
    unsigned int lane = threadIdx.x % 32, at = *position;
    __syncthreads();
    if (at >= CONTEXT) {
        return;
    }
    for (unsigned int sequence = threadIdx.x / 32; sequence < sequences; sequence += WARPS) {
        unsigned int best = lane;
        float most = logits[sequence * SYMBOLS + lane];
        for (unsigned int symbol = lane + 32; symbol < SYMBOLS; symbol += 32) {
            float logit = logits[sequence * SYMBOLS + symbol];
            if (logit > most) {
                most = logit;
                best = symbol;
            }
        }
        for (int lanes = 16; lanes > 0; lanes /= 2) {
            float logit = __shfl_xor_sync(0xffffffffu, most, lanes);
            unsigned int symbol = __shfl_xor_sync(0xffffffffu, best, lanes);
            if (logit > most || (logit == most && symbol < best)) {
                most = logit;
                best = symbol;
            }
        }
        if (lane == 0 && at + 1 < CONTEXT && at + 1 >= prompt_lengths[sequence]) {
            tokens[sequence * CONTEXT + at + 1] = best;
        }
    }
    if (threadIdx.x == 0) {
        *position = at + 1;
    }
}
