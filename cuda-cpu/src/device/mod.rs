//! The CPU device as a [`Backend`](cuda_core::Backend): streams are queues, worked off by a few threads
//! ([`pumps`]), which a pool helps with the blocks of kernels.
//!
//! A command is resolved when it is enqueued (names to addresses, bounds, shapes), so that what can be known at
//! once is told at once. What runs later is [`work::Work`]; a [`queue::Queue`] runs it in order, and hands its
//! thread back when it has to wait for a [`signal::Signal`]. Idle threads sleep.
//!
//! Whoever waits is told apart from the streams ([`notices`]), so that a waker that blocks holds up none. Memory
//! is made when it is enqueued where there is room; where there is none until frees that are enqueued have run,
//! the queue waits for it ([`parked`]).
//!
//! A fault is kept in [`lost::Lost`]: from then on queues skip what is in them, everyone who waits is told of it,
//! and enqueueing fails (but for what gives memory back) with `DeviceLost`, until the device is reset. A panic is a
//! fault too.
//!
//! No thread is joined, and none is needed to drop the device: the last handle may go on any of them.

mod backend;
mod job;
mod later;
mod lost;
mod modules;
mod notices;
mod parked;
mod provider;
mod pumps;
mod queue;
mod resolve;
mod signal;
mod timing;
mod translate;
mod watching;
mod work;

pub use backend::CpuBackend;
pub use provider::{CpuOptions, CpuProvider};
pub use timing::Timing;
