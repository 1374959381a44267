//! Tensors from and to other libraries.

#[cfg(feature = "candle")]
pub(super) mod candle;
#[cfg(feature = "candle-cuda")]
mod candle_cuda;
#[cfg(feature = "dlpack")]
pub mod dlpack;
#[cfg(feature = "ndarray")]
pub(super) mod ndarray;
