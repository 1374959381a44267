//! The CPU device as a [`Backend`](cuda_core::Backend): streams are queues, worked off by a pool of threads.
//!
//! A command is resolved when it is enqueued (names to addresses, bounds, shapes), so that what can be known at
//! once is told at once. What runs later is [`work::Work`]; a [`queue::Queue`] runs it in order, and hands its
//! thread back when it has to wait for a [`signal::Signal`]. Idle threads sleep.
//!
//! A fault is kept in [`lost::Lost`]: from then on queues skip what is in them, everyone who waits is told,
//! and enqueueing fails, until the device is reset.

mod backend;
mod lost;
mod provider;
mod queue;
mod resolve;
mod signal;
mod translate;
mod work;

pub use backend::CpuBackend;
pub use provider::{CpuOptions, CpuProvider};
