//! cudarc (feature `cudarc`): its streams, memory and kernels in operations, without copies.
//!
//! | to | use |
//! |---|---|
//! | run operations on a stream of cudarc | [`stream`], then [`sync_on`](crate::DeviceOp::sync_on) |
//! | use memory of cudarc in operations | [`from_slice`], `Tensor::from_buffer` of `cuda-tensor` |
//! | use the output of an operation in cudarc | [`into_slice`] |
//! | launch a kernel that cudarc has loaded | [`launch`] |
//! | call a CUDA library on the stream of an operation | [`ForeignCall`], [`with_context`](crate::with_context) |
//!
//! cudarc and this library use the same context of a GPU, the primary one. So each library can use streams and memory
//! of the other.
//!
//! ```no_run
//! use cuda_async::{interop, prelude::*};
//! use cudarc::driver::CudaContext;
//!
//! let theirs = CudaContext::new(0)?.new_stream()?;
//! // SAFETY: no code captures `theirs`.
//! let stream = unsafe { interop::stream(&theirs) }?;
//!
//! let numbers = theirs.clone_htod(&[1.0f32, 2.0, 3.0])?;
//! let buffer: DeviceBuffer<f32> = interop::from_slice(numbers)?;
//! let sum = value(buffer).then(to_host).map(|v| v.iter().sum::<f32>()).sync_on(&stream)?;
//! assert_eq!(sum, 6.0);
//!
//! let buffer = h2d(vec![4.0f32; 3]).sync_on(&stream)?;
//! assert_eq!(theirs.clone_dtoh(&interop::into_slice(buffer, &theirs)?)?, [4.0; 3]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// This folder uses `op`, `context`, `kernel` and `runtime`. Programs call it, and `cuda-tensor` uses it
// for candle.

mod device;
mod launch;
mod slice;
mod stream;

pub use cuda_core::{ForeignCall, RawStream};
pub use cudarc;
pub use device::device;
pub use launch::{ForeignLaunch, launch};
pub use slice::into_slice_ordered;
pub use slice::{from_slice, into_slice};
pub use stream::add as add_stream;
pub use stream::stream;
