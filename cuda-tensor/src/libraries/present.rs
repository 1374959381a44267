//! Whether the libraries are installed.

#[cfg(not(feature = "candle-cuda"))]
use std::sync::OnceLock;

macro_rules! present {
    ($($(#[$doc:meta])* $name:ident: $module:ident;)*) => {$(
        // candle makes cudarc link the libraries when the program is built, so a running program has them.
        $(#[$doc])*
        #[cfg(feature = "candle-cuda")]
        pub(super) const fn $name() -> bool {
            true
        }

        $(#[$doc])*
        #[cfg(not(feature = "candle-cuda"))]
        pub(super) fn $name() -> bool {
            static FOUND: OnceLock<bool> = OnceLock::new();
            // SAFETY: loads and unloads a library of NVIDIA, whose start-up code any program may run.
            *FOUND.get_or_init(|| unsafe { cudarc::$module::sys::is_culib_present() })
        }
    )*};
}

present! {
    /// Returns whether cuBLAS can be loaded.
    cublas: cublas;
    /// Returns whether cuBLASLt can be loaded.
    cublaslt: cublaslt;
    /// Returns whether cuFFT can be loaded.
    cufft: cufft;
    /// Returns whether NCCL can be loaded.
    nccl: nccl;
}
