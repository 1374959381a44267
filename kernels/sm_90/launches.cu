// Kernels that need a launch with attributes: cooperative grids, clusters, dependent launches. Compiled for compute
// capability 9.0, where clusters exist.

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

// Rotates the values by one block, once per round. Every round reads the values that another block wrote in the round
// before, so it is right only if all blocks wait for each other. `values` has one element per thread.
extern "C" __global__ void rotate(unsigned* values, unsigned rounds) {
    cg::grid_group grid = cg::this_grid();
    unsigned n = gridDim.x * blockDim.x;
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned round = 0; round < rounds; ++round) {
        unsigned other = ((volatile unsigned*)values)[(i + blockDim.x) % n];
        grid.sync();
        values[i] = other + 1;
        grid.sync();
    }
}

// Sums `values` within each cluster through the shared memory of its blocks. Writes the sum and the cluster's shape.
extern "C" __global__ void cluster_sum(unsigned* sums, const unsigned* values) {
    extern __shared__ unsigned parts[];
    cg::cluster_group cluster = cg::this_cluster();
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    parts[threadIdx.x] = values[i];
    cluster.sync();
    unsigned sum = 0;
    for (unsigned rank = 0; rank < cluster.num_blocks(); ++rank)
        for (unsigned at = 0; at < blockDim.x; ++at)
            sum += cluster.map_shared_rank(parts, rank)[at];
    cluster.sync();
    sums[i] = sum * 100 + cluster.num_blocks() * 10 + cluster.block_rank();
}

// Adds one to every value, after the kernel before it on the stream.
extern "C" __global__ void after_previous(unsigned* values, unsigned n) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] += 1;
}

// Writes `value` to every element, slowly. Lets a dependent kernel begin at once.
extern "C" __global__ void fill_slowly(unsigned* values, unsigned value, unsigned n, unsigned spins) {
    asm volatile("griddepcontrol.launch_dependents;");
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = value;
    for (unsigned spin = 0; spin < spins; ++spin) x = x * 1664525u + 1013904223u;
    if (i < n) values[i] = x == 7u ? value : value;
}

// Writes the index through dynamic shared memory, with `words` words of it.
extern "C" __global__ void through_shared(unsigned* out, unsigned words) {
    extern __shared__ unsigned parts[];
    for (unsigned at = threadIdx.x; at < words; at += blockDim.x) parts[at] = at * 3u;
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = parts[words - 1];
}
