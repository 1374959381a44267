//! Waking tasks: the timer of the process.
//!
//! This folder knows no device. It uses `misuse` and `cuda-core`. `context`, `runtime` and `ops` use it. A typical call
//! stores a task's waker here, and the timer thread or the thread that makes progress wakes it.

pub(crate) mod timer;
