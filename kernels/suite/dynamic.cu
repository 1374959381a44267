// Dynamic programming and backtracking.
// compile nvrtc12.4-sm_75 nvrtc13.0-sm_90-lineinfo clang22-sm_90 nvcc13.0-sm_80-G nvrtc13.0-sm_120-lineinfo
typedef unsigned u32;
typedef unsigned char u8;
typedef unsigned long long u64;

// Edit distance along antidiagonals, one pair of strings per block, rows in shared memory.
// case edit_distance <<<3, 64>>>(in u8 below:4 192, in u8 below:4 192, out u32 3) ref edit_distance
extern "C" __global__ void edit_distance(const u8* a, const u8* b, u32* out) {
    __shared__ u32 d[3][65];
    const u32 n = 64;
    u32 i = threadIdx.x + 1;
    const u8 *x = a + blockIdx.x * n, *y = b + blockIdx.x * n;
    u32 *now = d[0], *last = d[1], *before = d[2];
    for (u32 k = 0; k <= 2 * n; k++) {
        // now[i] is the distance of the first i of x and the first k - i of y.
        if (threadIdx.x == 0 && k <= n) now[0] = k;
        if (i == k) now[i] = i;
        else if (i < k && k - i <= n) now[i] = min(before[i - 1] + (x[i - 1] != y[k - i - 1]), min(last[i - 1], last[i]) + 1);
        __syncthreads();
        u32* free = before;
        before = last, last = now, now = free;
    }
    if (threadIdx.x == n - 1) out[blockIdx.x] = last[n];
}

// Smith and Waterman with affine gaps: a pair per thread, rows in local memory.
// case local_alignment <<<2, 32>>>(in u8 below:4 2048, in u8 below:4 2048, out i32 64)
extern "C" __global__ void local_alignment(const u8* a, const u8* b, int* out) {
    const int n = 32;
    u32 pair = blockIdx.x * blockDim.x + threadIdx.x;
    const u8 *x = a + pair * n, *y = b + pair * n;
    int score[n + 1], gap[n + 1], best = 0;
    for (int j = 0; j <= n; j++) score[j] = 0, gap[j] = -1000;
    for (int i = 0; i < n; i++) {
        int diagonal = 0, left = -1000;
        for (int j = 1; j <= n; j++) {
            gap[j] = max(gap[j] - 1, score[j] - 3);
            left = max(left - 1, score[j - 1] - 3);
            int match = diagonal + (x[i] == y[j - 1] ? 2 : -1);
            diagonal = score[j];
            score[j] = max(max(match, 0), max(gap[j], left));
            best = max(best, score[j]);
        }
    }
    out[pair] = best;
}

// Longest common subsequence, 64 columns in a word with a carry.
// case common_subsequence <<<1, 64>>>(in u8 below:4 4096, in u8 below:4 4096, out u32 64) ref common_subsequence
extern "C" __global__ void common_subsequence(const u8* a, const u8* b, u32* out) {
    u64 positions[4] = {0, 0, 0, 0}, row = ~0ull;
    for (u32 i = 0; i < 64; i++) positions[a[threadIdx.x * 64 + i]] |= 1ull << i;
    for (u32 j = 0; j < 64; j++) {
        u64 match = positions[b[threadIdx.x * 64 + j]];
        row = (row + (row & match)) | (row & ~match);
    }
    out[threadIdx.x] = __popcll(~row);
}

// Knapsack: the capacity over the threads, two rows in dynamic shared memory.
// case knapsack <<<1, 256, 4096>>>(in u32 below:60 40, in u32 below:100 40, out u32 1, u32 40, u32 500) ref knapsack
extern "C" __global__ void knapsack(const u32* weights, const u32* values, u32* out, u32 items, u32 capacity) {
    extern __shared__ u32 best[];
    u32 width = capacity + 1;
    for (u32 c = threadIdx.x; c < 2 * width; c += blockDim.x) best[c] = 0;
    for (u32 i = 0; i < items; i++) {
        u32 *from = best + (i & 1) * width, *to = best + (~i & 1) * width;
        __syncthreads();
        for (u32 c = threadIdx.x; c < width; c += blockDim.x)
            to[c] = c < weights[i] ? from[c] : max(from[c], from[c - weights[i]] + values[i]);
    }
    __syncthreads();
    if (threadIdx.x == 0) *out = best[(items & 1) * width + capacity];
}

__device__ u32 place_queens(u32 n, u32 columns, u32 left, u32 right) {
    u32 all = (1u << n) - 1;
    if (columns == all) return 1;
    u32 count = 0;
    for (u32 free = all & ~(columns | left | right); free; free &= free - 1) {
        u32 bit = free & -free;
        count += place_queens(n, columns | bit, (left | bit) << 1, (right | bit) >> 1);
    }
    return count;
}

// Queens on a board of n x n. Each thread starts from two given rows and recurses.
// case queens <<<1, 64>>>(inout u32 zero 1, u32 8) ref queens
extern "C" __global__ void queens(u32* count, u32 n) {
    u32 a = 1u << threadIdx.x % n, b = 1u << threadIdx.x / n;
    if (threadIdx.x >= n * n || (b & (a | a << 1 | a >> 1))) return;
    atomicAdd(count, place_queens(n, a | b, (a << 1 | b) << 1, (a >> 1 | b) >> 1));
}

// All-pairs shortest paths (Floyd-Warshall) in shared memory.
// case all_pairs <<<2, 16x16>>>(in u32 below:1000 512, out u32 512)
extern "C" __global__ void all_pairs(const u32* in, u32* out) {
    __shared__ u32 d[16][16];
    u32 x = threadIdx.x, y = threadIdx.y, at = blockIdx.x * 256 + y * 16 + x;
    d[y][x] = x == y ? 0 : in[at];
    for (u32 k = 0; k < 16; k++) {
        __syncthreads();
        u32 through = d[y][k] + d[k][x];
        __syncthreads();
        if (through < d[y][x]) d[y][x] = through;
    }
    out[at] = d[y][x];
}
