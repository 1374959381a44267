//! Conversions from and to tensors of candle on the first GPU. Without a GPU, the tests pass and check nothing.

// To build on a machine without CUDA's libraries, link empty libraries instead:
//
//     D=$(mktemp -d)
//     for l in cuda nccl nvrtc curand cublas cublasLt cufft; do cc -shared -o $D/lib$l.so -x c /dev/null; done
//     export CUDARC_CUDA_VERSION=13000
//     export RUSTFLAGS="-L $D -C relro-level=partial -C link-arg=-Wl,--unresolved-symbols=ignore-all,-z,lazy"
//     cargo test --no-run --target-dir $D/target -p cuda-tensor --features candle-cuda --test candle
//
// To run the binary on a machine with a GPU, load the libraries first, with their folders in `LD_LIBRARY_PATH`. The
// tests do not use NCCL, NVRTC and cuFFT.
//
//     LD_PRELOAD="libcuda.so.1 libcurand.so.10 libcublasLt.so.13 libcublas.so.13" ./candle-*

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod examples;
mod from_candle;
mod gpu;
mod into_candle;
mod ordering;
mod refusals;
mod release;
