//! Waking tasks: the timer of the process, and calls that block on threads of their own.
//!
//! This folder is independent of devices. It uses `cuda-core` alone. `context`, `runtime`, `ops` and `kernel` use it. A
//! typical call stores a task's waker here, and the timer thread wakes it at the deadline.

mod on_thread;
pub(crate) mod timer;

pub(crate) use on_thread::OnThread;
