//! Lazy, async, composable device operations.
//!
//! An operation is a value that knows what to do: building one touches no device. It is placed on a stream
//! when it is run, and no executor thread waits for it.
//!
//! ```
//! use cuda_async::prelude::*;
//!
//! # fn main() -> Result<(), Error> {
//! let op = h2d(vec![1.0f32, 2.0, 3.0]).then(to_host).map(|v| v.iter().sum::<f32>());
//! assert_eq!(op.sync()?, 6.0); // in a script; `op.await` in any executor
//! # Ok(())
//! # }
//! ```
//!
//! | to | use |
//! |---|---|
//! | move data | [`h2d`], [`to_host`], [`to_pinned`], [`to_device`], [`zeros`], [`uninitialised`], [`PinnedBuffer`] |
//! | run kernels | [`launch`], [`kernels!`] |
//! | do one thing after another | [`DeviceOp::then`], [`DeviceOp::map`], [`iterate`], [`in_order`], [`script`] |
//! | do things at the same time | [`zip!`], tuples, [`join_all`], [`race()`], [`DeviceOp::shared`], [`unzip!`] |
//! | run it | `.await`, [`DeviceOp::sync`], [`DeviceOp::sync_on`], [`DeviceOp::schedule`] |
//! | wait for memory | [`DeviceOp::wait_for_memory`] |
//! | meet errors | [`DeviceOp::or_else`], [`DeviceOp::map_err`], [`DeviceOp::settled`], [`DeviceOp::timeout`], [`retry`] |
//! | choose where | [`open`], [`devices`], [`DeviceOp::on`], [`SchedulingPolicy`] |
//! | set it for all | [`set_default_device`], [`set_default_policy`]; for one device [`set_device_policy`] |
//! | enqueue by hand | [`with_context`], [`Stream`], [`Submit`] |
//!
//! Operations become futures by `.await` and by `.into_future()`, which `tokio::spawn` wants. A buffer is
//! shared as `Arc<DeviceBuffer<T>>`; how a kernel's argument is held says what the kernel may do with it (see
//! [`KernelArg`]). Many pipelines with a bound on how many are in flight are `futures::stream::buffered` of
//! futures. The book in the repository teaches all of it.
#![deny(missing_docs)]

mod book;
pub mod context;
pub mod kernel;
pub mod memory;
pub mod op;
pub mod ops;
pub mod policy;
pub mod prelude;
pub mod run;
pub mod runtime;
mod wake;

pub use context::{Credit, ExecutionContext, MAX_FORK_STREAMS};
pub use cuda_core::{
    Crossing, Device, DeviceBuffer, DeviceInfo, Element, Error, Event, Fault, FaultKind, FaultSite,
    Function, Landing, LaunchConfig, MemoryInfo, Module, PinnedBuffer, Provider, Result,
    SourceLine, Stream, Ticket,
};
#[cfg(feature = "cpu")]
pub use cuda_cpu::{Checks, CpuOptions, CpuProvider, Profile, Schedule, Timing};
#[cfg(feature = "macros")]
pub use kernel::kernels;
pub use kernel::{ByValue, KernelArg, KernelArgs, KernelInput, KernelOutput, launch};
pub use memory::{
    BufferSource, HostSource, h2d, to_device, to_host, to_pinned, uninitialised, zeros,
};
pub use op::{IntoDeviceOp, Op, Submit};
#[doc(inline)]
pub use ops::{
    BoxedOp, DeviceOp, Retry, ScriptContext, Unzip, empty, in_order, iterate, join_all, race,
    retry, script, value, with_context,
};
pub use policy::{
    DEFAULT_STREAMS, Devices, LeastLoaded, MAX_POOL, MAX_STREAMS, Priorities, SchedulingPolicy,
    SingleStream, StreamPoolRoundRobin,
};
pub use run::DeviceFuture;
pub use runtime::{
    SPIN_RETRY, TIMER_LINGER, default_device, default_policy, device_policy, devices, max_spin,
    open, set_default_device, set_default_policy, set_device_policy, set_max_spin,
};

/// The README's program and the book's run as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
