//! The CPU device as a [`Backend`](cuda_core::Backend): streams are queues, worked off by a few threads
//! ([`pumps`]), which a pool helps with the blocks of kernels.
//!
//! A command is resolved when it is enqueued (names to addresses, bounds, shapes), so that what can be known at
//! once is told at once. What runs later is [`work::Work`]; a [`queue::Queue`] runs it in order, and hands its
//! thread back when it has to wait for a [`signal::Signal`]. Idle threads sleep.
//!
//! A fault is kept in [`lost::Lost`]: from then on queues skip what is in them, everyone who waits is told,
//! and enqueueing fails (but for what gives memory back), until the device is reset. A panic is a fault too.

mod backend;
mod lost;
mod provider;
mod pumps;
mod queue;
mod resolve;
mod signal;
mod translate;
mod work;

pub use backend::CpuBackend;
pub use provider::{CpuOptions, CpuProvider};
