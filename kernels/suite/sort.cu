// Sorting and merging.
// compile nvrtc12.4-sm_80 nvrtc13.0-sm_90 nvcc13.0-sm_90-lineinfo clang22-sm_75 nvrtc13.0-sm_120
typedef unsigned u32;
typedef unsigned long long u64;

// case bitonic <<<2, 256>>>(inout u32 bits 1024) ref sort_512
extern "C" __global__ void bitonic(u32* keys) {
    __shared__ u32 s[512];
    u32 t = threadIdx.x, at = blockIdx.x * 512;
    s[t] = keys[at + t];
    s[t + 256] = keys[at + t + 256];
    for (u32 size = 2; size <= 512; size *= 2)
        for (u32 step = size / 2; step; step /= 2) {
            __syncthreads();
            u32 i = 2 * t - (t & (step - 1)), j = i + step;
            bool up = (i & size) == 0;
            u32 a = s[i], b = s[j];
            if ((a > b) == up) s[i] = b, s[j] = a;
        }
    __syncthreads();
    keys[at + t] = s[t];
    keys[at + t + 256] = s[t + 256];
}

// A radix sort of one block: 8 passes of 4 bits, stable, keys and values.
// case radix <<<1, 128>>>(inout u32 bits 512, inout u32 iota 512) ref sort_pairs
extern "C" __global__ void radix(u32* keys, u32* values) {
    __shared__ u32 k[2][512], v[2][512];
    __shared__ u32 counts[16 * 128 + 1];
    u32 t = threadIdx.x;
    for (u32 i = t; i < 512; i += 128) k[0][i] = keys[i], v[0][i] = values[i];
    for (u32 pass = 0; pass < 8; pass++) {
        u32 from = pass & 1, to = from ^ 1, shift = 4 * pass;
        for (u32 d = 0; d < 16; d++) counts[d * 128 + t] = 0;
        __syncthreads();
        // Thread t owns keys 4t to 4t + 3.
        for (u32 i = 0; i < 4; i++) counts[(k[from][4 * t + i] >> shift & 15) * 128 + t]++;
        __syncthreads();
        // Exclusive scan over 2048 counters, 16 per thread.
        u32 sum = 0;
        for (u32 i = 0; i < 16; i++) {
            u32 x = counts[16 * t + i];
            counts[16 * t + i] = sum;
            sum += x;
        }
        u32 before = sum;
        for (u32 step = 1; step < 32; step *= 2) {
            u32 x = __shfl_up_sync(~0u, before, step);
            if (t % 32 >= step) before += x;
        }
        __shared__ u32 warps[4];
        if (t % 32 == 31) warps[t / 32] = before;
        __syncthreads();
        before -= sum;
        for (u32 w = 0; w < t / 32; w++) before += warps[w];
        for (u32 i = 0; i < 16; i++) counts[16 * t + i] += before;
        __syncthreads();
        for (u32 i = 0; i < 4; i++) {
            u32 key = k[from][4 * t + i], at = counts[(key >> shift & 15) * 128 + t]++;
            k[to][at] = key;
            v[to][at] = v[from][4 * t + i];
        }
        __syncthreads();
    }
    for (u32 i = t; i < 512; i += 128) keys[i] = k[0][i], values[i] = v[0][i];
}

// Each thread finds where its diagonal crosses the merge path and merges its share.
// case merge_path <<<4, 32>>>(in i32 sorted:5000 700, in i32 sorted:5000 580, out i32 1280, u32 700, u32 580) ref merge
extern "C" __global__ void merge_path(const int* a, const int* b, int* out, u32 na, u32 nb) {
    u32 threads = gridDim.x * blockDim.x, share = (na + nb + threads - 1) / threads;
    u32 diagonal = (blockIdx.x * blockDim.x + threadIdx.x) * share;
    if (diagonal > na + nb) diagonal = na + nb;
    u32 low = diagonal > nb ? diagonal - nb : 0, high = diagonal < na ? diagonal : na;
    while (low < high) {
        u32 middle = (low + high) / 2;
        if (a[middle] <= b[diagonal - 1 - middle]) low = middle + 1;
        else high = middle;
    }
    u32 i = low, j = diagonal - low;
    for (u32 k = diagonal; k < diagonal + share && k < na + nb; k++)
        out[k] = j >= nb || (i < na && a[i] <= b[j]) ? a[i++] : b[j++];
}

// Odd-even transposition of records with a 64-bit key.
struct Record {
    u64 key;
    u32 tag;
    float weight;
};

// case odd_even <<<2, 32>>>(inout u64 bits 256)
extern "C" __global__ void odd_even(Record* records) {
    __shared__ Record s[64];
    u32 t = threadIdx.x;
    for (u32 i = t; i < 64; i += 32) s[i] = records[blockIdx.x * 64 + i];
    __syncthreads();
    for (u32 round = 0; round < 64; round++) {
        u32 i = 2 * t + (round & 1);
        if (i + 1 < 64 && s[i].key > s[i + 1].key) {
            Record x = s[i];
            s[i] = s[i + 1];
            s[i + 1] = x;
        }
        __syncthreads();
    }
    for (u32 i = t; i < 64; i += 32) records[blockIdx.x * 64 + i] = s[i];
}

// Insertion sort in local memory, one row per thread, with indices by value; then the median of each row.
// case local_sort <<<1, 64>>>(in f32 unit 1344, out f32 64, out u8 1344)
extern "C" __global__ void local_sort(const float* in, float* medians, unsigned char* order) {
    float x[21];
    unsigned char index[21];
    for (int i = 0; i < 21; i++) {
        float value = in[threadIdx.x * 21 + i];
        int at = i;
        while (at > 0 && x[at - 1] > value) {
            x[at] = x[at - 1];
            index[at] = index[at - 1];
            at--;
        }
        x[at] = value;
        index[at] = (unsigned char)i;
    }
    medians[threadIdx.x] = x[10];
    for (int i = 0; i < 21; i++) order[threadIdx.x * 21 + i] = index[i];
}
