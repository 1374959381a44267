//! Tensors: device memory with a shape, and common operations on it.
//!
//! Operations on tensors are operations of `cuda-async`: lazy values that run on any device.
//!
//! ```
//! use cuda_async::prelude::*;
//! use cuda_tensor::{Tensor, TensorOps};
//!
//! let x = Tensor::from_host(vec![1.0f32, 2.0, 3.0, 4.0], [2, 2]);
//! let doubled = x.mul_scalar(2.0).to_host_vec();
//! # let device = cuda_async::open_blocking("cpu")?;
//! assert_eq!(doubled.on(&device).sync()?, [2.0, 4.0, 6.0, 8.0]);
//! # Ok::<(), cuda_async::Error>(())
//! ```
//!
//! A network with two layers:
//!
//! ```
//! use cuda_async::prelude::*;
//! use cuda_tensor::{Activation, Tensor, TensorOps};
//!
//! struct Network {
//!     hidden: Tensor<f32>,
//!     output: Tensor<f32>,
//!     bias: Tensor<f32>,
//! }
//!
//! impl Network {
//!     fn forward(&self, x: Tensor<f32>) -> impl DeviceOp<Output = Tensor<f32>> {
//!         let hidden = x.linear(&self.hidden, &self.bias, Activation::Relu);
//!         hidden.linear(&self.output, &self.bias, Activation::Identity).softmax(1)
//!     }
//! }
//!
//! let weights = |seed| Tensor::<f32>::randn([4, 4], seed).sync();
//! let network = Network { hidden: weights(1)?, output: weights(2)?, bias: Tensor::zeros(4).sync()? };
//! let y = network.forward(Tensor::ones([2, 4]).sync()?).sum_dim(1).to_host_vec().sync()?;
//! assert!(y.iter().all(|sum| (sum - 1.0).abs() < 1e-6));
//! # Ok::<(), cuda_async::Error>(())
//! ```
//!
//! | to | use |
//! |---|---|
//! | make tensors and views | [`Tensor`], [`TensorView`], [`SharedTensor`] |
//! | compute | [`TensorOps`] |
//! | pass tensors to kernels | a contiguous tensor is a [`KernelArg`](cuda_async::kernel::KernelArg); [`Partition`] |
//! | use several devices at once | [`collective`] |
//! | use tensors of other libraries | the features `dlpack`, `candle`, `candle-cuda`, `ndarray` |
//! | use cuBLAS, cuFFT and NCCL | `libraries` (feature `cudarc`) |

// A typical call goes from `TensorOps` in `ops` to the file of the operation in `operations`, which launches a kernel
// of `cuda-tensor/kernels`, or calls a library of `libraries`. The layers, lowest first; each uses only those before
// it, `cuda-core` and `cuda-async`:
//
// | part | concept |
// |---|---|
// | `shape` | shapes, strides, and errors about them |
// | `element` | element types, and their kernels |
// | `libraries` | NVIDIA's libraries |
// | `tensor`, `forms` | the tensor and its views, and the forms in which an operation takes it |
// | `argument` | tensors as arguments of kernels |
// | `operations` | the operations |
// | `ops`, `exchange` | `TensorOps`, and tensors of other libraries |
// | `collective` | operations on tensors of several devices |
#![deny(missing_docs)]

mod argument;
mod book;
pub mod collective;
mod element;
mod error;
mod exchange;
mod forms;
#[cfg(feature = "cudarc")]
pub mod libraries;
mod operations;
mod ops;
mod shape;
mod tensor;

pub use argument::Partition;
pub use element::{DType, FftFloat, Float, Number, Signed};
pub use error::TensorError;
#[cfg(feature = "dlpack")]
pub use exchange::dlpack;
#[cfg(feature = "ndarray")]
pub use exchange::ndarray::HostArray;
pub use forms::{IntoTensor, TensorInput, TensorOutput};
pub use half::{bf16, f16};
pub use operations::{
    elementwise::{Binary, Comparison, FloatUnary, Unary},
    loops::{ScalarExt, ScalarValue},
    product::Activation,
    random::Generator,
    transfer::to_device,
};
pub use ops::TensorOps;
pub use shape::{IntoShape, Layout, MAX_RANK};
pub use tensor::{SharedTensor, Tensor, TensorView, TensorViewMut};
