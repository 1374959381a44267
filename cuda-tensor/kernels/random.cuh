// Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011. A block of
// numbers depends only on its index and the key, so element i of a tensor does not depend on the launch shape.

struct Words { u32 word[4]; };

__device__ inline Words philox(u64 key, u64 block)
{
    u32 k0 = (u32)key, k1 = (u32)(key >> 32);
    Words c = {{(u32)block, (u32)(block >> 32), 0, 0}};
#pragma unroll
    for (int round = 0; round < 10; round++) {
        u64 p = (u64)0xD2511F53u * c.word[0], q = (u64)0xCD9E8D57u * c.word[2];
        c = {{(u32)(q >> 32) ^ c.word[1] ^ k0, (u32)q, (u32)(p >> 32) ^ c.word[3] ^ k1, (u32)p}};
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

// Uniform in [0, 1), with as many bits as the type has in [0.5, 1). An f64 takes two words.
#define DRAWS (4 / WORDS)
#if WORDS == 2
__device__ inline Value uniform_of(const u32 *word)
{
    u64 bits = (u64)word[1] << 32 | word[0];
    return (double)(bits >> 11) * 1.1102230246251565e-16;
}
__device__ inline void normal_pair(Value a, Value b, Value *pair)
{
    Value radius = sqrt(-2.0 * log(1.0 - a)), sine, cosine;
    sincospi(2.0 * b, &sine, &cosine);
    pair[0] = radius * cosine;
    pair[1] = radius * sine;
}
#else
__device__ inline Value uniform_of(const u32 *word)
{
    return (float)(*word >> (32 - DIGITS)) * (1.0f / (1 << DIGITS));
}
__device__ inline void normal_pair(Value a, Value b, Value *pair)
{
    Value radius = sqrtf(-2.0f * logf(1.0f - a)), sine, cosine;
    sincospif(2.0f * b, &sine, &cosine);
    pair[0] = radius * cosine;
    pair[1] = radius * sine;
}
#endif

// The uniform numbers for the Box-Muller transform (1958): 53 bits for f64, 24 bits for the other types.
__device__ inline Value uniform_wide(const u32 *word)
{
#if WORDS == 2
    return uniform_of(word);
#else
    return (float)(*word >> 8) * (1.0f / (1 << 24));
#endif
}

template <bool NORMAL> __device__ void draw(Stored *y, u64 n, u64 key, u64 start)
{
    u64 blocks = n / DRAWS + (n % DRAWS != 0);
    for (u64 block = first(); block < blocks; block += threads()) {
        Words words = philox(key, start + block);
        Value drawn[DRAWS];
        if (NORMAL) {
#pragma unroll
            for (int pair = 0; pair < DRAWS; pair += 2) {
                normal_pair(
                    uniform_wide(words.word + pair * WORDS), uniform_wide(words.word + (pair + 1) * WORDS), drawn + pair);
            }
        } else {
#pragma unroll
            for (int i = 0; i < DRAWS; i++) {
                drawn[i] = uniform_of(words.word + i * WORDS);
            }
        }
#pragma unroll
        for (int i = 0; i < DRAWS; i++) {
            if (block * DRAWS + i < n) {
                y[block * DRAWS + i] = narrow(drawn[i]);
            }
        }
    }
}

extern "C" __global__ void uniform(Stored *y, u64 n, u64 key)
{
    draw<false>(y, n, key, 0);
}

extern "C" __global__ void normal(Stored *y, u64 n, u64 key)
{
    draw<true>(y, n, key, 0);
}

// `state` is that of a generator: the key, and the number of Philox blocks that have been used.
extern "C" __global__ void uniform_from(Stored *y, u64 n, const u64 *state)
{
    draw<false>(y, n, state[0], state[1]);
}

extern "C" __global__ void normal_from(Stored *y, u64 n, const u64 *state)
{
    draw<true>(y, n, state[0], state[1]);
}
