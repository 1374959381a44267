//! The CPU device as a [`Backend`](cuda_core::Backend). `cuda-core` calls it.
//!
//! The backend resolves a submission to an item (`items`) and adds it to the queue of its stream (`queues`). A thread
//! pool helps to run the blocks of kernels. Memory is allocated at submission if it is available.
//!
//! Layers, lowest first: `state`, `items` and `pools`, `queues`, `options`, `backend`, and `provider`. They
//! use `memory` and `launch`, and the options and faults of the folders below.
//!
//! No thread is joined, because the last handle of the device may be dropped on any of them.

mod backend;
mod items;
mod options;
mod pools;
mod provider;
mod queues;
mod state;

pub use backend::CpuBackend;
pub use options::CpuOptions;
pub use provider::CpuProvider;
pub use queues::Timing;
