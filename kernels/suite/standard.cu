// libcu++: atomics with orders and scopes, and the standard library's small types.
// compile nvrtc12.9-sm_80 nvrtc13.0-sm_90 nvrtc13.0-sm_90-nofma clang19-sm_80 nvcc13.0-sm_90-fast nvrtc13.0-sm_120
#include <cuda/atomic>
#include <cuda/std/array>
#include <cuda/std/bit>
#include <cuda/std/complex>
#include <cuda/std/limits>
#include <cuda/std/optional>
#include <cuda/std/span>
#include <cuda/std/tuple>
#include <cuda/std/type_traits>
#include <cuda/std/utility>
typedef unsigned u32;
typedef unsigned long long u64;

// case atomic_orders <<<2, 64>>>(in u32 bits 128, inout u32 zero 12, inout u64 zero 4)
extern "C" __global__ void atomic_orders(const u32* in, u32* words, u64* wide) {
    using namespace cuda::std;
    u32 x = in[blockIdx.x * blockDim.x + threadIdx.x];
    cuda::atomic_ref<u32, cuda::thread_scope_device> a(words[0]), b(words[1]), c(words[2]), d(words[3]), e(words[4]);
    cuda::atomic_ref<u32, cuda::thread_scope_block> f(words[5 + blockIdx.x]);
    cuda::atomic_ref<u32> g(words[7]);
    a.fetch_add(x, memory_order_relaxed), b.fetch_or(x & 0xFFFF, memory_order_release), c.fetch_max(x, memory_order_acq_rel);
    d.fetch_xor(x, memory_order_seq_cst), e.fetch_and(~x, memory_order_acquire), f.fetch_add(1, memory_order_relaxed), g.fetch_sub(3);
    u32 expected = 0;
    while (!a.compare_exchange_weak(expected, expected + 1, memory_order_acq_rel, memory_order_relaxed)) {}
    cuda::atomic_ref<u64, cuda::thread_scope_system> h(wide[0]), k(wide[1]);
    h.fetch_add((u64)x << 16, memory_order_relaxed), k.fetch_min(0, memory_order_seq_cst);
    cuda::atomic_ref<u64, cuda::thread_scope_device>(wide[2]).store(17, memory_order_release);
    if (cuda::atomic_ref<u64, cuda::thread_scope_device>(wide[2]).load(memory_order_acquire) == 17) words[8] = 1;
    cuda::atomic_ref<float, cuda::thread_scope_device> y(*(float*)&words[9]);
    y.fetch_add(0.5f, memory_order_relaxed);
    cuda::atomic_thread_fence(memory_order_seq_cst, cuda::thread_scope_device);
}

// A queue with a lock in the style of cuda::atomic_flag in shared memory, and a counter that threads wait for.
// case waiting <<<1, 64>>>(in u32 below:100 64, out u32 2)
extern "C" __global__ void waiting(const u32* in, u32* out) {
    __shared__ cuda::atomic<u32, cuda::thread_scope_block> lock, turn;
    __shared__ u32 sum;
    if (threadIdx.x == 0) lock.store(0), turn.store(0), sum = 0;
    __syncthreads();
    bool done = false;
    while (!done) {
        u32 free = 0;
        if (lock.compare_exchange_strong(free, 1, cuda::std::memory_order_acquire)) {
            sum += in[threadIdx.x];
            lock.store(0, cuda::std::memory_order_release);
            done = true;
        }
    }
    if (threadIdx.x % 32 == 0) {
        while (turn.load(cuda::std::memory_order_acquire) != threadIdx.x / 32) {}
        out[1] = threadIdx.x;
        turn.store(threadIdx.x / 32 + 1, cuda::std::memory_order_release);
    }
    __syncthreads();
    out[0] = sum;
}

// case small_types <<<1, 64>>>(in u64 special 64, out u64 64, out i32 64)
extern "C" __global__ void small_types(const u64* in, u64* out, int* signs) {
    using namespace cuda::std;
    u64 x = in[threadIdx.x];
    array<u32, 4> parts = {{(u32)x, (u32)(x >> 32), (u32)popcount(x), (u32)countl_zero(x)}};
    auto both = make_tuple(parts[2], rotl(parts[0], 7), bit_cast<float>(parts[1]) > 1.0f);
    span<u32> view(parts.data(), 3);
    u64 sum = get<0>(both) + ((u64)get<1>(both) << 8) + get<2>(both);
    for (u32 v : view) sum = sum * 31 + v;
    optional<u32> some = x & 1 ? optional<u32>(parts[3]) : nullopt;
    sum ^= some.value_or(numeric_limits<u32>::max());
    auto two = pair<u32, int>(bit_width((u32)x), countr_one((u32)x));
    out[threadIdx.x] = sum + bit_ceil((u32)(x & 0xFFFF)) + __byte_perm((u32)x, 0, 0x0123);
    signs[threadIdx.x] = (int)two.first * 100 + two.second + is_signed<int>::value;
}

// Products and sums without an explicit rounding: the driver may fuse them, and the iteration amplifies the
// difference. Compiled with nofma, every bit is the same.
// case complex_numbers <<<2, 64>>>(in f32 unit 256, out f32 256, out f64 256) ulp 64 abs 1e-5
extern "C" __global__ void complex_numbers(const float* in, float* out, double* wide) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    cuda::std::complex<float> z(in[2 * i], in[2 * i + 1]), c(-0.4f, 0.6f);
    for (int k = 0; k < 6; k++) z = z * z + c;
    z = z / (c + cuda::std::conj(z));
    out[2 * i] = z.real(), out[2 * i + 1] = z.imag();
    cuda::std::complex<double> w(in[2 * i], in[2 * i + 1]);
    w = w * w / cuda::std::complex<double>(0.5, -0.25) - w;
    wide[2 * i] = w.real(), wide[2 * i + 1] = cuda::std::norm(w);
}
