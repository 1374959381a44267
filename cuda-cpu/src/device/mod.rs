//! The CPU device as a [`Backend`](cuda_core::Backend): streams are queues, worked off by a few threads
//! ([`pumps`]), which a pool helps with the blocks of kernels.
//!
//! A submission is resolved when it is made (names to addresses, bounds, shapes), so that its errors are returned at
//! once where they can be known. A [`queue::Queue`] runs the resolved [`work::Work`] in order. It gives its thread back
//! when the next job has to wait for another queue, for memory, or for a delay. Idle threads sleep.
//!
//! Notices are delivered apart from the queues ([`notices`]), so that a waker that blocks delays no stream. Memory is
//! allocated at submission where there is room. Where there is room only after submitted frees have run, the queue waits
//! ([`parked`]).
//!
//! A fault is kept in [`lost::Lost`]. From then on queues skip their jobs, which fail with the fault, and submissions are
//! refused with `DeviceLost` (frees are not), until the device is reset. A panic counts as a fault.
//!
//! No thread is joined, and the last handle of the device may be dropped on any of them.

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
