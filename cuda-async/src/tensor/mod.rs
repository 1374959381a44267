//! Tensors: device memory with a shape, and common operations on it.

// This folder uses `memory` and `kernel`. Programs call it directly. A typical call goes from `TensorOps` to the file of the
// operation, which launches a kernel of `cuda-async/kernels`.

mod arg_reduce;
mod argument;
#[cfg(feature = "candle-cuda")]
mod candle_cuda;
#[cfg(feature = "candle")]
mod candle_interop;
mod copy;
mod create;
#[cfg(feature = "dlpack")]
pub mod dlpack;
mod dtype;
mod elementwise;
mod forms;
mod fourier;
mod host;
mod kernel_forms;
mod kernels;
mod layout;
mod loop_state;
#[cfg(feature = "ndarray")]
mod ndarray_interop;
mod operation;
mod ops;
mod partition;
mod product;
mod random;
mod reduce;
mod scalar;
mod shape;
mod softmax;
#[allow(clippy::module_inception)] // the concept of the folder
mod tensor;

pub use dtype::{DType, FftFloat, Float, Number, Signed};
pub use elementwise::{Binary, Comparison, FloatUnary, Unary};
pub use forms::{IntoTensor, TensorInput, TensorOutput};
pub use half::{bf16, f16};
pub use layout::Layout;
pub use ops::TensorOps;
pub use partition::Partition;
pub use product::Activation;
pub use random::Generator;
pub use scalar::ScalarValue;
pub use shape::{IntoShape, MAX_RANK};
pub use tensor::{SharedTensor, Tensor, TensorView, TensorViewMut};
