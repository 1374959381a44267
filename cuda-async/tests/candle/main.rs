//! Tensors of candle on the first GPU, without copies. Without a GPU, nothing is tested.

// To build without CUDA's libraries, for a machine that has them: D=$(mktemp -d); for l in cuda nccl nvrtc curand cublas cublasLt cufft; do cc -shared -o $D/lib$l.so -x c /dev/null; done; CUDARC_CUDA_VERSION=13000 RUSTFLAGS="-L $D -C relro-level=partial -C link-arg=-Wl,--unresolved-symbols=ignore-all,-z,lazy" cargo test --no-run --target-dir $D/target -p cuda-async --features candle-cuda --test candle
// To run there: LD_PRELOAD="libcuda.so.1 libcurand.so.10 libcublasLt.so.13 libcublas.so.13" candle-*, with their folders in LD_LIBRARY_PATH. The test needs no NCCL, NVRTC and cuFFT.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod from_candle;
mod gpu;
mod into_candle;
mod ordering;
mod refusals;
mod release;
