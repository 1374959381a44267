//! Waking tasks: the timer of the process.
//!
//! This folder is independent of devices. It uses `cuda-core` alone. `context`, `runtime` and `ops` use it. A typical
//! call stores a task's waker here, and the timer thread wakes it at the deadline.

pub(crate) mod timer;
