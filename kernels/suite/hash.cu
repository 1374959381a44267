// Hashes and ciphers: rotations, carries and tables.
// compile nvrtc12.9-sm_75 nvrtc13.0-sm_90 clang22-sm_80 nvcc13.0-sm_80-lineinfo nvrtc13.0-sm_120
typedef unsigned char u8;
typedef unsigned u32;
typedef unsigned long long u64;

__constant__ u32 sha_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

__device__ u32 turn(u32 x, u32 by) { return x >> by | x << (32 - by); }

// SHA-256 of messages of `length` bytes each, one per thread.
// case sha256 <<<2, 32>>>(in u8 bits 6400, out u32 512, u32 100) ref sha256
extern "C" __global__ void sha256(const u8* messages, u32* out, u32 length) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    const u8* m = messages + i * length;
    u32 h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    u32 blocks = (length + 9 + 63) / 64;
    for (u32 b = 0; b < blocks; b++) {
        u32 w[64];
        for (u32 k = 0; k < 16; k++) {
            u32 word = 0;
            for (u32 j = 0; j < 4; j++) {
                u32 at = b * 64 + k * 4 + j;
                word = word << 8 | (at < length ? m[at] : at == length ? 0x80 : 0);
            }
            w[k] = word;
        }
        if (b == blocks - 1) w[15] = length * 8;
        for (u32 k = 16; k < 64; k++) {
            u32 s0 = turn(w[k - 15], 7) ^ turn(w[k - 15], 18) ^ w[k - 15] >> 3;
            u32 s1 = turn(w[k - 2], 17) ^ turn(w[k - 2], 19) ^ w[k - 2] >> 10;
            w[k] = w[k - 16] + s0 + w[k - 7] + s1;
        }
        u32 v[8];
        for (u32 k = 0; k < 8; k++) v[k] = h[k];
        for (u32 k = 0; k < 64; k++) {
            u32 s1 = turn(v[4], 6) ^ turn(v[4], 11) ^ turn(v[4], 25), choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
            u32 t1 = v[7] + s1 + choice + sha_k[k] + w[k];
            u32 s0 = turn(v[0], 2) ^ turn(v[0], 13) ^ turn(v[0], 22), most = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
            for (u32 j = 7; j; j--) v[j] = v[j - 1];
            v[4] += t1;
            v[0] = t1 + s0 + most;
        }
        for (u32 k = 0; k < 8; k++) h[k] += v[k];
    }
    for (u32 k = 0; k < 8; k++) out[i * 8 + k] = h[k];
}

// MurmurHash3, 32 bits, of strings of different lengths.
// case murmur3 <<<1, 64>>>(in u8 bits 4096, out u32 64) ref murmur3
extern "C" __global__ void murmur3(const u8* in, u32* out) {
    const u8* key = in + threadIdx.x * 64;
    u32 length = threadIdx.x, h = 0x9747b28c, i = 0;
    for (; i + 4 <= length; i += 4) {
        u32 k = *(const u32*)(key + i) * 0xcc9e2d51u;
        h = turn(h ^ turn(k, 17) * 0x1b873593u, 19) * 5 + 0xe6546b64u;
    }
    u32 k = 0;
    switch (length & 3) {
    case 3: k ^= key[i + 2] << 16; // falls through
    case 2: k ^= key[i + 1] << 8;  // falls through
    case 1: k ^= key[i]; h ^= turn(k * 0xcc9e2d51u, 17) * 0x1b873593u;
    }
    h ^= length;
    h ^= h >> 16, h *= 0x85ebca6bu, h ^= h >> 13, h *= 0xc2b2ae35u, h ^= h >> 16;
    out[threadIdx.x] = h;
}

__device__ u32 crc_table[256];

// One warp creates the table. Then each thread processes its own string, and again bit by bit with `brev`.
// case crc32 <<<1, 64>>>(in u8 bits 4096, out u32 64, out u32 64, u32 64) ref crc32
extern "C" __global__ void crc32(const u8* in, u32* by_table, u32* by_bits, u32 length) {
    if (threadIdx.x < 32)
        for (u32 i = threadIdx.x; i < 256; i += 32) {
            u32 x = i;
            for (int k = 0; k < 8; k++) x = x & 1 ? x >> 1 ^ 0xEDB88320u : x >> 1;
            crc_table[i] = x;
        }
    __syncthreads();
    const u8* text = in + threadIdx.x * length;
    u32 crc = ~0u;
    for (u32 i = 0; i < length; i++) crc = crc >> 8 ^ crc_table[(crc ^ text[i]) & 255];
    by_table[threadIdx.x] = ~crc;
    u32 other = ~0u;
    for (u32 i = 0; i < length; i++) {
        other ^= __brev(text[i]);
        for (int k = 0; k < 8; k++) other = (int)other < 0 ? other << 1 ^ 0x04C11DB7u : other << 1;
    }
    by_bits[threadIdx.x] = __brev(~other);
}

// xxHash64.
__device__ u64 turn64(u64 x, u32 by) { return x << by | x >> (64 - by); }
#define P1 0x9E3779B185EBCA87ull
#define P2 0xC2B2AE3D27D4EB4Full
#define P3 0x165667B19E3779F9ull
#define P4 0x85EBCA77C2B2AE63ull
#define P5 0x27D4EB2F165667C5ull

__device__ u64 xx_round(u64 sum, u64 input) { return turn64(sum + input * P2, 31) * P1; }

// case xxhash64 <<<2, 32>>>(in u64 bits 704, out u64 64, u32 11, u64 7)
extern "C" __global__ void xxhash64(const u64* in, u64* out, u32 words, u64 seed) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    const u64* x = in + i * words;
    u64 v[4] = {seed + P1 + P2, seed + P2, seed, seed - P1};
    u32 at = 0;
    for (; at + 4 <= words; at += 4)
        for (u32 k = 0; k < 4; k++) v[k] = xx_round(v[k], x[at + k]);
    u64 h = turn64(v[0], 1) + turn64(v[1], 7) + turn64(v[2], 12) + turn64(v[3], 18);
    for (u32 k = 0; k < 4; k++) h = (h ^ xx_round(0, v[k])) * P1 + P4;
    h += words * 8;
    for (; at < words; at++) h = turn64(h ^ xx_round(0, x[at]), 27) * P1 + P4;
    h ^= h >> 33, h *= P2, h ^= h >> 29, h *= P3, h ^= h >> 32;
    out[i] = h;
}

// ChaCha20: a block of key stream per thread.
// case chacha20 <<<2, 32>>>(in u32 bits 8, out u32 1024) ref chacha20
extern "C" __global__ void chacha20(const u32* key, uint4* out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    u32 start[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574, key[0], key[1], key[2], key[3],
                     key[4], key[5], key[6], key[7], i, 1, 2, 3}, x[16];
#pragma unroll
    for (int k = 0; k < 16; k++) x[k] = start[k];
    auto quarter = [&](int a, int b, int c, int d) {
        x[a] += x[b], x[d] = __byte_perm(x[d] ^ x[a], 0, 0x1032);
        x[c] += x[d], x[b] = __funnelshift_l(x[b] ^ x[c], x[b] ^ x[c], 12);
        x[a] += x[b], x[d] = __byte_perm(x[d] ^ x[a], 0, 0x2103);
        x[c] += x[d], x[b] = __funnelshift_l(x[b] ^ x[c], x[b] ^ x[c], 7);
    };
    for (int round = 0; round < 10; round++) {
        quarter(0, 4, 8, 12), quarter(1, 5, 9, 13), quarter(2, 6, 10, 14), quarter(3, 7, 11, 15);
        quarter(0, 5, 10, 15), quarter(1, 6, 11, 12), quarter(2, 7, 8, 13), quarter(3, 4, 9, 14);
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
        out[i * 4 + k] = make_uint4(x[4 * k] + start[4 * k], x[4 * k + 1] + start[4 * k + 1], x[4 * k + 2] + start[4 * k + 2],
                                    x[4 * k + 3] + start[4 * k + 3]);
}

// A hash table with open addressing, filled and then queried, with 64-bit slots and compare-and-swap.
// case hash_table <<<4, 64>>>(in u32 perm 256, inout u64 zero 512, scratch u32 1, out u32 256, u32 512)
extern "C" __global__ void hash_table(const u32* keys, u64* scratch_slots, u32* arrived, u32* found, u32 slots) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, key = keys[i] + 1;
    u32 at = key * 2654435761u % slots;
    while (atomicCAS(&scratch_slots[at], 0, (u64)key << 32 | i) != 0) at = (at + 1) % slots;
    // All blocks insert before any block queries.
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1);
        while (*(volatile u32*)arrived < gridDim.x) {}
    }
    __syncthreads();
    u32 wanted = i + 1;
    for (at = wanted * 2654435761u % slots;; at = (at + 1) % slots) {
        u64 slot = *(volatile u64*)&scratch_slots[at];
        if (slot >> 32 == wanted) {
            found[i] = (u32)slot;
            break;
        }
    }
    // The position of a key depends on the order, so only the number of keys is stored.
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1);
        while (*(volatile u32*)arrived < 2 * gridDim.x) {}
    }
    __syncthreads();
    for (u32 s = i; s < slots; s += gridDim.x * blockDim.x) scratch_slots[s] = 0;
}
