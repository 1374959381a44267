//! Tensors: device memory with a shape, and common operations on it.

// This folder uses `memory` and `kernel`. Programs call it directly. A typical call goes from `TensorOps` in `ops` to the
// file of the operation in `operations`, which launches a kernel of `cuda-async/kernels`. The layers, lowest first:
//
// | part | concept |
// |---|---|
// | `shape` | shapes, strides, and errors about them |
// | `element` | element types, and their kernels |
// | `tensor`, `forms` | the tensor and its views, and the forms in which an operation takes it |
// | `argument` | tensors as arguments of kernels |
// | `operations` | the operations |
// | `ops`, `operands`, `method_macros`, `exchange` | `TensorOps`, and tensors of other libraries |

mod argument;
mod element;
mod exchange;
mod forms;
mod method_macros;
mod operands;
mod operations;
mod ops;
mod shape;

#[allow(clippy::module_inception)] // the concept of the folder
mod tensor;

pub use argument::partition::Partition;
pub use element::dtype::{DType, FftFloat, Float, Number, Signed};
#[cfg(feature = "dlpack")]
pub use exchange::dlpack;
#[cfg(feature = "ndarray")]
pub use exchange::ndarray::HostArray;
pub use forms::{IntoTensor, TensorInput, TensorOutput};
pub use half::{bf16, f16};
pub use operations::{
    elementwise::{FloatUnary, Unary},
    pairs::{Binary, Comparison},
    product::Activation,
    random::Generator,
    scalar::ScalarValue,
    to_device::to_device,
};
pub use ops::TensorOps;
pub use shape::{
    layout::Layout,
    shape::{IntoShape, MAX_RANK},
};
pub use tensor::{SharedTensor, Tensor, TensorView, TensorViewMut};
