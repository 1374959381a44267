// Sparse matrices and graphs. A graph of n vertices: row offsets and column indices.
// compile nvrtc12.9-sm_80 nvrtc13.0-sm_90 clang19-sm_90 nvcc13.0-sm_75 nvrtc13.0-sm_120
typedef unsigned u32;

// case spmv_scalar <<<4, 64>>>(in u32 rows:9 257, in u32 below:256 2400, in f32 unit 2400, in f32 unit 256, out f32 256, u32 256) ref spmv
extern "C" __global__ void spmv_scalar(const u32* rows, const u32* columns, const float* values, const float* x, float* y, u32 n) {
    u32 row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n) return;
    float sum = 0;
    for (u32 i = rows[row]; i < rows[row + 1]; i++) sum = __fmaf_rn(values[i], __ldg(&x[columns[i]]), sum);
    y[row] = sum;
}

// Eight lanes per row.
// case spmv_vector <<<16, 128>>>(in u32 rows:30 257, in u32 below:256 8000, in f64 unit 8000, in f64 unit 256, out f64 256, u32 256)
extern "C" __global__ void spmv_vector(const u32* rows, const u32* columns, const double* values, const double* x, double* y, u32 n) {
    u32 row = (blockIdx.x * blockDim.x + threadIdx.x) / 8, lane = threadIdx.x % 8;
    double sum = 0;
    if (row < n)
        for (u32 i = rows[row] + lane; i < rows[row + 1]; i += 8) sum = __fma_rn(values[i], x[columns[i]], sum);
    for (u32 step = 4; step; step /= 2) sum += __shfl_down_sync(~0u, sum, step, 8);
    if (row < n && lane == 0) y[row] = sum;
}

// Coordinates, added by atomics. Small integers, so the order does not matter.
// case spmv_coo <<<4, 128>>>(in u32 below:100 1500, in u32 below:100 1500, in f64 below:50 1500, in f64 below:50 100, inout f64 zero 100, u32 1500)
extern "C" __global__ void spmv_coo(const u32* rows, const u32* columns, const double* values, const double* x, double* y, u32 n) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&y[rows[i]], values[i] * x[columns[i]]);
}

// Breadth-first levels with a queue filled by warp-aggregated atomics: all levels in one launch of one block.
// case bfs <<<1, 128>>>(in u32 rows:5 401, in u32 below:400 2400, out u32 400, scratch u32 800, u32 400) ref bfs
extern "C" __global__ void bfs(const u32* rows, const u32* columns, u32* levels, u32* queues, u32 n) {
    __shared__ u32 size, next_size;
    for (u32 v = threadIdx.x; v < n; v += blockDim.x) levels[v] = v ? ~0u : 0;
    if (threadIdx.x == 0) queues[0] = 0, size = 1, next_size = 0;
    __syncthreads();
    for (u32 level = 1; size; level++) {
        const u32* queue = queues + (level + 1) % 2 * n;
        u32* next = queues + level % 2 * n;
        for (u32 q = threadIdx.x; q < size; q += blockDim.x) {
            u32 v = queue[q];
            for (u32 i = rows[v]; i < rows[v + 1]; i++) {
                u32 to = columns[i];
                if (atomicCAS(&levels[to], ~0u, level) == ~0u) {
                    u32 mask = __activemask(), leader = __ffs(mask) - 1, at = 0;
                    if (threadIdx.x % 32 == leader) at = atomicAdd(&next_size, __popc(mask));
                    at = __shfl_sync(mask, at, leader) + __popc(mask & ((1u << threadIdx.x % 32) - 1));
                    next[at] = to;
                }
            }
        }
        __syncthreads();
        if (threadIdx.x == 0) size = next_size, next_size = 0;
        __syncthreads();
    }
}

// Shortest paths by relaxation until nothing changes. Distances only shrink, so any order has the same result.
// case shortest_paths <<<1, 256>>>(in u32 rows:6 301, in u32 below:300 2000, in u32 below:90 2000, out u32 300, u32 300) ref shortest_paths
extern "C" __global__ void shortest_paths(const u32* rows, const u32* columns, const u32* weights, u32* distances, u32 n) {
    for (u32 v = threadIdx.x; v < n; v += blockDim.x) distances[v] = v ? ~0u : 0;
    bool changed = true;
    while (__syncthreads_or(changed)) {
        changed = false;
        for (u32 v = threadIdx.x; v < n; v += blockDim.x) {
            u32 here = *(volatile u32*)&distances[v];
            if (here == ~0u) continue;
            for (u32 i = rows[v]; i < rows[v + 1]; i++)
                if (atomicMin(&distances[columns[i]], here + weights[i] + 1) > here + weights[i] + 1) changed = true;
        }
    }
}

// Connected components: hooking to the smaller label, and pointer jumping.
// case components <<<1, 128>>>(in u32 below:200 150, in u32 below:200 150, out u32 200, u32 150, u32 200) ref components
extern "C" __global__ void components(const u32* from, const u32* to, u32* labels, u32 edges, u32 n) {
    for (u32 v = threadIdx.x; v < n; v += blockDim.x) labels[v] = v;
    __syncthreads();
    int changed = 1;
    while (__syncthreads_count(changed) != 0) {
        changed = 0;
        for (u32 e = threadIdx.x; e < edges; e += blockDim.x) {
            u32 a = labels[from[e]], b = labels[to[e]];
            if (a == b) continue;
            u32 low = min(a, b), high = max(a, b);
            if (atomicMin(&labels[high], low) > low) changed = 1;
            changed = 1;
        }
        __syncthreads();
        for (u32 v = threadIdx.x; v < n; v += blockDim.x)
            while (labels[v] != labels[labels[v]]) labels[v] = labels[labels[v]];
        __syncthreads();
    }
}

// Triangles by intersecting sorted neighbour lists as bitmaps.
// case triangles <<<4, 32>>>(in u32 bits 512, inout u32 zero 1)
extern "C" __global__ void triangles(const u32* bitmap, u32* count) {
    u32 v = blockIdx.x * blockDim.x + threadIdx.x, words = 4, sum = 0;
    auto edge = [&](u32 a, u32 b) { return a != b && (bitmap[min(a, b) * words + max(a, b) / 32] >> max(a, b) % 32 & 1); };
    for (u32 a = v + 1; a < 128; a++) {
        if (!edge(v, a)) continue;
        for (u32 w = a / 32; w < words; w++) {
            u32 both = bitmap[v * words + w] & bitmap[a * words + w];
            if (w == a / 32) both &= ~((2u << a % 32) - 1);
            sum += __popc(both);
        }
    }
    for (u32 step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x == 0) atomicAdd(count, sum);
}
