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

mod blocking;
mod book;
mod context;
mod defaults;
mod device_op;
mod device_policy;
mod devices;
mod future;
mod op;
mod policy;
mod siblings;
mod spin;
mod timer;
#[cfg(feature = "macros")]
mod typed_kernels;

pub mod ops;
pub mod prelude;

pub use context::{ExecutionContext, Room};
pub use cuda_core::{
    Crossing, Device, DeviceBuffer, DeviceInfo, Element, Error, Event, Fault, FaultKind, FaultSite,
    Function, Landing, LaunchConfig, MemoryInfo, Module, PinnedBuffer, Provider, Result,
    SourceLine, Stream, Ticket,
};
#[cfg(feature = "cpu")]
pub use cuda_cpu::{Checks, CpuOptions, CpuProvider, Profile, Schedule, Timing};
pub use defaults::{default_device, default_policy, set_default_device, set_default_policy};
pub use device_op::DeviceOp;
pub use device_policy::{device_policy, set_device_policy};
pub use devices::{devices, open};
pub use future::DeviceFuture;
pub use op::{IntoDeviceOp, Op, Submit};
#[doc(inline)]
pub use ops::{
    BoxedOp, BufferSource, ByValue, HostSource, KernelArg, KernelArgs, KernelInput, KernelOutput,
    Retry, ScriptContext, Unzip, empty, h2d, in_order, iterate, join_all, launch, race, retry,
    script, to_device, to_host, to_pinned, uninitialised, value, with_context, zeros,
};
pub use policy::{
    DEFAULT_STREAMS, Devices, LeastLoaded, MAX_POOL, MAX_STREAMS, Priorities, SchedulingPolicy,
    SingleStream, StreamPoolRoundRobin,
};
pub use siblings::MAX_SIBLING_STREAMS;
pub use spin::{RETRY as SPIN_RETRY, max_spin, set_max_spin};
pub use timer::LINGER as TIMER_LINGER;
#[cfg(feature = "macros")]
pub use typed_kernels::kernels;

/// The README's program and the book's run as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
