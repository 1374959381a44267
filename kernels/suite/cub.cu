// Unmodified block and warp primitives of CUB.
// compile nvrtc12.9-sm_80 nvrtc13.0-sm_90 nvcc13.0-sm_75 clang19-sm_90 nvrtc13.0-sm_120
#include <cub/block/block_adjacent_difference.cuh>
#include <cub/block/block_discontinuity.cuh>
#include <cub/block/block_exchange.cuh>
#include <cub/block/block_histogram.cuh>
#include <cub/block/block_load.cuh>
#include <cub/block/block_merge_sort.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>
#include <cub/warp/warp_merge_sort.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>
typedef unsigned u32;
typedef unsigned long long u64;

struct Larger {
    template <typename T> __device__ T operator()(const T& a, const T& b) const { return b > a ? b : a; }
};
struct Less {
    template <typename T> __device__ bool operator()(const T& a, const T& b) const { return a < b; }
};

// case cub_reduce <<<3, 128>>>(in u32 bits 1536, out u32 3, out u32 3, out f64 3) ref cub_reduce
extern "C" __global__ void cub_reduce(const u32* in, u32* sums, u32* maxima, double* wide) {
    using Load = cub::BlockLoad<u32, 128, 4, cub::BLOCK_LOAD_TRANSPOSE>;
    using Reduce = cub::BlockReduce<u32, 128, cub::BLOCK_REDUCE_WARP_REDUCTIONS>;
    using Raking = cub::BlockReduce<u32, 128, cub::BLOCK_REDUCE_RAKING>;
    using Wide = cub::BlockReduce<double, 128>;
    __shared__ union {
        typename Load::TempStorage load;
        typename Reduce::TempStorage reduce;
        typename Raking::TempStorage raking;
        typename Wide::TempStorage wide;
    } shared;
    u32 items[4];
    Load(shared.load).Load(in + blockIdx.x * 512, items);
    __syncthreads();
    u32 sum = Reduce(shared.reduce).Sum(items);
    __syncthreads();
    u32 most = Raking(shared.raking).Reduce(items[1], Larger());
    __syncthreads();
    double total = Wide(shared.wide).Sum((double)(items[2] >> 8));
    if (threadIdx.x == 0) sums[blockIdx.x] = sum, maxima[blockIdx.x] = most, wide[blockIdx.x] = total;
}

// case cub_scan <<<2, 128>>>(in u32 below:1000 768, out u32 768, out u32 256, out u32 2) ref cub_scan
extern "C" __global__ void cub_scan(const u32* in, u32* out, u32* maxima, u32* totals) {
    using Scan = cub::BlockScan<u32, 128, cub::BLOCK_SCAN_WARP_SCANS>;
    using Raking = cub::BlockScan<u32, 128, cub::BLOCK_SCAN_RAKING>;
    __shared__ typename Scan::TempStorage scan;
    __shared__ typename Raking::TempStorage raking;
    u32 items[3], total, at = (blockIdx.x * 128 + threadIdx.x) * 3, largest;
    for (u32 k = 0; k < 3; k++) items[k] = in[at + k];
    u32 first = items[0];
    Scan(scan).ExclusiveSum(items, items, total);
    for (u32 k = 0; k < 3; k++) out[at + k] = items[k];
    Raking(raking).InclusiveScan(first, largest, Larger());
    maxima[blockIdx.x * 128 + threadIdx.x] = largest;
    if (threadIdx.x == 0) totals[blockIdx.x] = total;
}

// case cub_sort <<<2, 64>>>(inout u32 bits 512, inout u32 iota 512, inout f32 unit 512) ref cub_sort
extern "C" __global__ void cub_sort(u32* keys, u32* values, float* floats) {
    using Pairs = cub::BlockRadixSort<u32, 64, 4, u32>;
    using Floats = cub::BlockRadixSort<float, 64, 4>;
    __shared__ union {
        typename Pairs::TempStorage pairs;
        typename Floats::TempStorage floats;
    } shared;
    u32 k[4], v[4], at = (blockIdx.x * 64 + threadIdx.x) * 4;
    float f[4];
    for (u32 i = 0; i < 4; i++) k[i] = keys[at + i], v[i] = values[at + i], f[i] = floats[at + i];
    Pairs(shared.pairs).Sort(k, v);
    __syncthreads();
    Floats(shared.floats).SortDescendingBlockedToStriped(f);
    for (u32 i = 0; i < 4; i++) keys[at + i] = k[i], values[at + i] = v[i], floats[blockIdx.x * 256 + i * 64 + threadIdx.x] = f[i];
}

// case cub_merge_sort <<<1, 64>>>(inout u64 bits 256, inout u32 bits 64)
extern "C" __global__ void cub_merge_sort(u64* keys, u32* small) {
    using Sort = cub::BlockMergeSort<u64, 64, 4>;
    using WarpSort = cub::WarpMergeSort<u32, 1, 32>;
    __shared__ typename Sort::TempStorage shared;
    __shared__ typename WarpSort::TempStorage warps[2];
    u64 k[4];
    for (u32 i = 0; i < 4; i++) k[i] = keys[threadIdx.x * 4 + i];
    Sort(shared).Sort(k, Less());
    for (u32 i = 0; i < 4; i++) keys[threadIdx.x * 4 + i] = k[i];
    u32 one[1] = {small[threadIdx.x]};
    WarpSort(warps[threadIdx.x / 32]).Sort(one, Less());
    small[threadIdx.x] = one[0];
}

// case cub_histogram <<<2, 64>>>(in u8 below:32 512, out u32 64, out u32 512) ref cub_histogram
extern "C" __global__ void cub_histogram(const unsigned char* in, u32* counts, u32* heads) {
    using Histogram = cub::BlockHistogram<unsigned char, 64, 4, 32, cub::BLOCK_HISTO_SORT>;
    using Heads = cub::BlockDiscontinuity<unsigned char, 64>;
    using Difference = cub::BlockAdjacentDifference<int, 64>;
    __shared__ u32 bins[32];
    __shared__ union {
        typename Histogram::TempStorage histogram;
        typename Heads::TempStorage heads;
    } shared;
    unsigned char items[4];
    int flags[4];
    u32 at = blockIdx.x * 256 + threadIdx.x * 4;
    for (u32 i = 0; i < 4; i++) items[i] = in[at + i];
    Heads(shared.heads).FlagHeads(flags, items, [](unsigned char a, unsigned char b) { return a / 8 != b / 8; });
    for (u32 i = 0; i < 4; i++) heads[at + i] = flags[i];
    __syncthreads();
    Histogram(shared.histogram).Histogram(items, bins);
    __syncthreads();
    if (threadIdx.x < 32) counts[blockIdx.x * 32 + threadIdx.x] = bins[threadIdx.x];
}

// case cub_warp <<<1, 64>>>(in i32 below:1000 64, out i32 64, out i32 64, out i32 8)
extern "C" __global__ void cub_warp(const int* in, int* sums, int* segmented, int* eights) {
    using Scan = cub::WarpScan<int>;
    using Reduce = cub::WarpReduce<int>;
    using Eight = cub::WarpReduce<int, 8>;
    __shared__ typename Scan::TempStorage scan[2];
    __shared__ typename Reduce::TempStorage reduce[2];
    __shared__ typename Eight::TempStorage eight[8];
    int x = in[threadIdx.x], before, warp = threadIdx.x / 32;
    Scan(scan[warp]).ExclusiveScan(x, before, -1, Larger());
    sums[threadIdx.x] = before;
    segmented[threadIdx.x] = Reduce(reduce[warp]).HeadSegmentedSum(x, x % 5 == 0);
    if (!(x % 5 == 0 || threadIdx.x % 32 == 0)) segmented[threadIdx.x] = 0;
    int sum = Eight(eight[threadIdx.x / 8]).Sum(x);
    if (threadIdx.x % 8 == 0) eights[threadIdx.x / 8] = sum;
}

// case cub_exchange <<<2, 64>>>(in u32 bits 640, out u32 640)
extern "C" __global__ void cub_exchange(const u32* in, u32* out) {
    using Exchange = cub::BlockExchange<u32, 64, 5>;
    using Store = cub::BlockStore<u32, 64, 5, cub::BLOCK_STORE_WARP_TRANSPOSE>;
    __shared__ union {
        typename Exchange::TempStorage exchange;
        typename Store::TempStorage store;
    } shared;
    u32 items[5];
    for (u32 i = 0; i < 5; i++) items[i] = in[blockIdx.x * 320 + i * 64 + threadIdx.x];
    Exchange(shared.exchange).StripedToBlocked(items, items);
    for (u32 i = 0; i < 5; i++) items[i] = items[i] * 3 + i;
    __syncthreads();
    Store(shared.store).Store(out + blockIdx.x * 320, items);
}
