//! Waking tasks: the process's timer.
//!
//! This folder knows no device and uses no other folder. `context`, `runtime` and `ops` use it. A typical call
//! registers a task's waker here, and the timer thread or the thread that makes progress wakes it.

pub(crate) mod timer;
