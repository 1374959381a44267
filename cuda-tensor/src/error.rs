//! Mistakes that only tensors have.

use cuda_core::Error;

/// A mistake with a tensor, mostly in the exchange with other libraries. [`Error::downcast_ref`] finds it in an error.
///
/// ```
/// use cuda_async::prelude::*;
/// use cuda_tensor::{Tensor, TensorError};
///
/// let error = Tensor::<f32>::arange(0.0..f32::NAN).map(drop).sync().unwrap_err();
/// assert!(matches!(error.downcast_ref(), Some(TensorError::Unbounded { .. })));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// The elements are of another type.
    #[error(
        "{object}: its elements are {given}, not {expected}; convert it first, in its own framework, or import it with its \
         own type and use `cast`"
    )]
    ElementType {
        /// The tensor.
        object: &'static str,
        /// Its type, in words.
        given: String,
        /// The type of the elements that are required.
        expected: &'static str,
    },
    /// A range of floating-point numbers has no finite number of elements.
    #[error("a tensor of the range {range}: it has no number of elements; use finite bounds")]
    Unbounded {
        /// The range.
        range: String,
    },
    /// The pointer to a DLPack tensor is null.
    #[error("a DLPack tensor: its pointer is null; pass a pointer that no other code has consumed")]
    NullTensor,
    /// A DLPack tensor has another major version than 1.
    #[error(
        "a DLPack tensor: its version is {major}.{minor}, but only 1.x is supported; ask the producer for that, in Python \
         with `__dlpack__(max_version=(1, 3))`"
    )]
    Version {
        /// The major version.
        major: u32,
        /// The minor version.
        minor: u32,
    },
    /// The producer gave a DLPack tensor invalid fields.
    #[error("a DLPack tensor: {detail}; the producer has to correct it")]
    Malformed {
        /// The field and its value.
        detail: String,
    },
    /// A DLPack tensor is neither on a CUDA GPU nor on the host.
    #[error(
        "a DLPack tensor: it is on a device of DLPack's type {device_type}; copy it to a CUDA GPU or to the host first, in \
         its own framework"
    )]
    DeviceType {
        /// DLPack's number of the type.
        device_type: u32,
    },
    /// A DLPack tensor of a GPU is read-only, and operations may write a tensor in its memory.
    #[error(
        "a DLPack tensor: it is read-only, but operations may write a tensor in its memory; ask the producer for a copy, in \
         Python with `__dlpack__(copy=True)`"
    )]
    ReadOnly,
    /// A read-only tensor in the form before DLPack 1.0, which has no read-only flag.
    #[error(
        "a DLPack tensor: it is read-only, but the form before DLPack 1.0 has no read-only flag; use `into_raw`, or export \
         a copy of the tensor (`dup()`)"
    )]
    ReadOnlyUnversioned,
    /// A tensor or a device of candle is not on a CUDA GPU.
    #[error("{object}: it is not on a CUDA GPU; use `from_candle` and `to_candle`, which copy")]
    NotOnGpu {
        /// The tensor or the device.
        object: &'static str,
    },
    /// An earlier collective of the communicator failed.
    #[error("a communicator: an earlier collective of this group failed; make a new communicator")]
    BrokenCommunicator,
}

impl From<TensorError> for Error {
    fn from(error: TensorError) -> Self {
        Error::other(error)
    }
}
