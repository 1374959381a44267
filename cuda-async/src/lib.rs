//! Lazy, async, composable GPU operations.
//!
//! An operation is a value that describes work. Building one uses no device. Running one places it on a stream, and
//! no executor thread waits for it.
//!
//! ```
//! use cuda_async::{Error, prelude::*};
//!
//! # fn main() -> Result<(), Error> {
//! let op = h2d(vec![1.0f32, 2.0, 3.0]).then(to_host).map(|v| v.iter().sum::<f32>());
//! assert_eq!(op.sync()?, 6.0); // without an executor; `op.await` in any executor
//! # Ok(())
//! # }
//! ```
//!
//! A program with a kernel is on the page of [`kernel`], and one with a graph on that of [`graph`].
//!
//! | feature | adds |
//! |---|---|
//! | `cpu`, by default | the CPU device, which runs PTX on any machine |
//! | `cuda`, by default | NVIDIA GPUs, through the driver that is found at run time; builds without CUDA |
//! | `macros`, by default | [`kernels!`]: kernels that are declared in Rust and checked against their PTX |
//! | `nvrtc`, by default | [`kernel::compile()`]: CUDA C++ that is compiled at run time |
//! | `lease` | devices of other machines: `open("lease://HOST:PORT?min_vram=1GiB")` |
//! | `cudarc` | streams, memory and modules of `cudarc`, without a copy |
//! | `bytes`, `ndarray` | uploads of `bytes::Bytes`, and of arrays of `ndarray` |
//! | `spans` | spans of `tracing` for runs and named operations, and an event for each submission |
//!
//! | to | use |
//! |---|---|
//! | move data | [`h2d`], [`to_host`], [`to_host_into`], [`to_pinned`], [`to_device`], [`zeros`], [`uninitialized`], [`PinnedBuffer`] |
//! | use memory again, or parts of it | [`memory::upload_into`], [`memory::fill`], [`memory::copy`], [`memory::read_back`], [`DeviceBuffer::slice`], [`DeviceBuffer::split_at_mut`] |
//! | compute with tensors | the crate `cuda-tensor` |
//! | run kernels | [`kernels!`], [`kernel::compile()`], [`launch`], [`cuda_launch!`], [`cuda_launch_async!`], [`kernel::KernelArg`], [`kernel::KernelParam`] |
//! | use the variables of a module | [`Module::variable`] |
//! | run operations in sequence | [`DeviceOp::then`], [`DeviceOp::map`], [`DeviceOp::try_map`], [`defer`], [`iterate`], [`in_order`], [`script`] |
//! | run operations concurrently | [`zip!`], tuples, [`join_all`], [`race()`], [`DeviceOp::shared`], [`unzip!`] |
//! | run many operations with a limit | [`run::OpStreamExt`] |
//! | run an operation | `.await`, [`DeviceOp::sync`], [`DeviceOp::sync_on`], [`DeviceOp::schedule`] |
//! | wait for memory | [`DeviceOp::wait_for_memory`] |
//! | handle errors | [`DeviceOp::or_else`], [`DeviceOp::map_err`], [`DeviceOp::settled`], [`DeviceOp::timeout`], [`retry`] |
//! | record an operation and launch it many times | [`graph::GraphExt::graph`], [`graph::CudaGraph`] |
//! | choose the device or the stream | [`open`], [`open_blocking`], [`devices`], [`DeviceOp::on`], [`policy`] |
//! | measure an operation, find its fastest form | [`DeviceOp::timed`], [`kernel::Autotuner`], [`Function::occupancy`] |
//! | set process-wide defaults | [`set_default_device`], [`runtime`] |
//! | write an operation by hand | [`with_context`], [`Stream`], [`op::Submit`] |
//!
//! Operations become futures by `.await` or by `.into_future()`, which `tokio::spawn` needs. A buffer is shared as
//! `Arc<DeviceBuffer<T>>`. The form in which a kernel takes a buffer decides its access (see [`kernel::KernelArg`]).
//! [`OpStreamExt`](run::OpStreamExt) runs the operations of a `futures` stream with a limit on those in flight. The
//! book in the repository explains all of this.

// Each module uses only the modules before it: `wake`, `context`, `op`, `policy`, `runtime`, `run`, `ops`, then
// `memory`, `kernel`, `interop` and `graph`.
#![deny(missing_docs)]

mod book;
pub mod context;
pub mod graph;
#[doc(hidden)]
pub mod internals;
#[cfg(feature = "cudarc")]
pub mod interop;
pub mod kernel;
pub mod memory;
pub mod op;
pub mod ops;
pub mod policy;
pub mod prelude;
pub mod run;
pub mod runtime;
mod wake;

pub use context::ExecutionContext;
pub use cuda_core;
pub use cuda_core::{
    Device, DeviceBuffer, Element, Error, Function, LaunchConfig, Module, PinnedBuffer, Result,
    Stream,
};
#[cfg(feature = "cpu")]
pub use cuda_cpu;
#[cfg(feature = "cuda")]
pub use cuda_driver;
#[cfg(feature = "macros")]
pub use kernel::kernels;
pub use kernel::launch;
pub use memory::{h2d, to_device, to_host, to_host_into, to_pinned, uninitialized, zeros};
pub use op::{IntoDeviceOp, Op};
#[doc(inline)]
pub use ops::{
    BoxedOp, DeviceOp, Retry, defer, in_order, iterate, join_all, race, retry, script, value,
    with_context,
};
pub use policy::SchedulingPolicy;
pub use run::DeviceFuture;
pub use runtime::{default_device, devices, open, open_blocking, set_default_device};

/// The README's program and the book's run as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
