//! The CPU device as a [`Backend`](cuda_core::Backend). It uses `memory` and `launch`, and `cuda-core` calls it.
//!
//! A stream is a queue of jobs. A few threads ([`pumps`]) run the queues, and a thread pool helps to run the blocks of
//! kernels.
//!
//! A submission is resolved when it is made: names become addresses, and bounds and shapes are checked. Errors that are
//! detected then are returned to the caller. A [`queue::Queue`] runs the resolved [`work::Work`] in order. It releases its
//! thread when the next job has to wait for another queue, for memory, or for a delay. Idle threads sleep.
//!
//! Notices are delivered separately from the queues ([`notices`]), so a waker that blocks delays no stream. Memory is
//! allocated at submission if it is available. If it becomes available only after submitted frees, the queue waits
//! ([`memory_waiters`]).
//!
//! A fault is stored in [`lost::Lost`]. Until the device is reset, queues then skip their jobs, which fail with the fault.
//! Submissions are refused with `DeviceLost`, except frees. A panic counts as a fault.
//!
//! No thread is joined, because the last handle of the device may be dropped on any of them.

mod backend;
mod graph;
mod growth;
mod job;
mod launch_options;
mod lost;
mod memory_waiters;
mod modules;
mod notices;
mod pools;
mod provider;
mod pumps;
mod queue;
mod resolve;
mod signal;
mod timer;
mod timing;
mod translate;
mod work;

pub use backend::CpuBackend;
pub use provider::{CpuOptions, CpuProvider};
pub use timing::Timing;
