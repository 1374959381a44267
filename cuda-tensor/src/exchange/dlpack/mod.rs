//! DLPack (feature `dlpack`): exchange of tensors with other frameworks, such as PyTorch, JAX, CuPy and NumPy.
//!
//! | to | use |
//! |---|---|
//! | import a tensor of another framework | [`ManagedTensor::from_raw`], then [`Tensor::from_dlpack`](crate::Tensor::from_dlpack) |
//! | export a tensor to another framework | [`Tensor::into_dlpack`](crate::Tensor::into_dlpack), then [`ManagedTensor::into_raw`] |
//!
//! | memory of the tensor | import | export |
//! |---|---|---|
//! | a GPU of this process | without a copy | without a copy |
//! | the host | a copy to the device of the operation | |
//! | the CPU device, a leased device | | a copy to the host |
//!
//! Import and export support both C structs of DLPack: `DLManagedTensorVersioned` of DLPack 1.x, and the older
//! `DLManagedTensor`. Every element type of [`DType`](crate::DType) has a DLPack type.
//!
//! ```
//! use cuda_async::prelude::*;
//! use cuda_tensor::{Tensor, TensorOps, dlpack::ManagedTensor};
//!
//! let x = Tensor::from_host(vec![1.0f32, 2.0, 3.0, 4.0], [2, 2]);
//! let raw = x.then(|x| x.into_dlpack()).sync()?.into_raw();
//! // Another framework can own `raw` now. Here it comes back.
//! // SAFETY: `raw` is valid and is used once.
//! let managed = unsafe { ManagedTensor::from_raw(raw) }?;
//! assert_eq!(managed.shape(), [2, 2]);
//! // SAFETY: no other code uses the memory, and no work on it is in flight.
//! let y = unsafe { Tensor::<f32>::from_dlpack(managed) };
//! assert_eq!(y.mul_scalar(10.0).to_host_vec().sync()?, [10.0, 20.0, 30.0, 40.0]);
//! # Ok::<(), cuda_async::Error>(())
//! ```

// This folder uses `shape`, `element`, `tensor` and `operations`. Programs call it.
// A typical call goes from `Tensor::from_dlpack` in `import` to `DeviceBuffer::from_raw_parts`, or from
// `Tensor::into_dlpack` in `export` to `ManagedTensor::of` in `managed`.

pub mod abi;
mod export;
mod import;
mod managed;

pub use managed::ManagedTensor;
